#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "common/security/api_keys.h"
#include "common/security/file_watch.h"
#include "common/security/refusals.h"

namespace baton {

// A client or operator who has proven who he is.
struct Caller {
  std::string id;  // "tenant/name"
  std::string tenant;
  KeyLimits limits;
};

// Recognises callers by the keys in a file, which is read again when it changes. When a changed
// file cannot be read, the keys read before stay valid, and the log says so. Thread-safe.
class Authenticator final {
 public:
  // Errors of ApiKeys::Load. `refusals` outlives the authenticator.
  static StatusOr<std::unique_ptr<Authenticator>> Open(const std::string& keys_file,
                                                       Refusals& refusals);

  // The caller who presents `key`. Unauthenticated when the key is empty, unknown, expired or
  // revoked; the message never repeats the key.
  StatusOr<Caller> Authenticate(std::string_view key);
  // The present entry of a caller's id; nothing when it was removed.
  std::optional<Caller> Find(std::string_view id);

 private:
  Authenticator(FileWatch watch, ApiKeys keys, Refusals& refusals);
  std::shared_ptr<const ApiKeys> Keys();

  Refusals& refusals_;
  std::mutex mutex_;  // guards the members below
  FileWatch watch_;
  std::shared_ptr<const ApiKeys> keys_;
};

// The key in the value of a header `Authorization`: of "Bearer KEY", or the password of "Basic …",
// with which browsers open pages. Empty when there is none.
std::string KeyOfAuthorization(std::string_view value);

}  // namespace baton
