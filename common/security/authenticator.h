#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "common/base/status.h"
#include "common/security/api_keys.h"
#include "common/security/jwt.h"
#include "common/security/refusals.h"
#include "common/security/reloaded_file.h"

namespace baton {

// A client or operator who has proven who he is.
struct Caller {
  // "tenant/name" of a key, "jwt/tenant/subject" of a token, "name/(certificate)" of a certificate
  std::string id;
  std::string tenant;
  KeyLimits limits;
};

// Recognises callers by API keys, JSON Web Tokens and certificates. Files are read again when they
// change. When a changed file cannot be read, what was read before stays valid, and the log says
// so. Thread-safe.
class Authenticator final {
 public:
  struct Files {
    std::string keys;  // ApiKeys; empty: there are no API keys
    std::string jwks;  // JwtKeys; empty: tokens are not accepted
    JwtPolicy policy;
    bool certificates = false;  // callers may present a certificate instead of a key
    Duration look_every = FileWatch::kInterval;
  };

  // Errors of ApiKeys::Load and JwtKeys::Load. `refusals` outlives the authenticator.
  static StatusOr<std::unique_ptr<Authenticator>> Open(const Files& files, Refusals& refusals);

  // The caller who presents `credential`, a key or a token. When it is empty: the caller whose
  // certificate, which the handshake has verified, has the common name `certificate`.
  // Unauthenticated when both are empty, or the credential is unknown, expired or revoked; the
  // message never repeats it.
  StatusOr<Caller> Authenticate(std::string_view credential, std::string_view certificate = "");
  // The caller with an id that Authenticate has returned; nothing when the key was removed.
  std::optional<Caller> Find(std::string_view id);

 private:
  Authenticator(ReloadedFile<ApiKeys> keys, ReloadedFile<JwtKeys> tokens, bool certificates)
      : keys_(std::move(keys)), tokens_(std::move(tokens)), certificates_(certificates) {}
  StatusOr<Caller> OfCertificate(std::string_view name) const;

  ReloadedFile<ApiKeys> keys_;
  ReloadedFile<JwtKeys> tokens_;
  const bool certificates_;
};

// The key in the value of a header `Authorization`: of "Bearer KEY", or the password of "Basic …",
// with which browsers open pages. Empty when there is none.
std::string KeyOfAuthorization(std::string_view value);

}  // namespace baton
