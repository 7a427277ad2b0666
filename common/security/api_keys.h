#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"
#include "common/security/digest.h"

namespace baton {

// What the holder of a key may use. 0: no limit.
struct KeyLimits {
  int64_t requests_in_flight = 0;  // each prompt of a completions request counts as a request
  double requests_per_second = 0;
  double tokens_per_second = 0;  // of prompts and answers together
  int64_t body_bytes = 0;        // of one HTTP request
  int64_t prompt_tokens = 0;     // of one prompt
  int64_t output_tokens = 0;     // of one request, all prompts and samples together
};

// A key as the file of keys describes it. The file has the key's hash, not the key.
struct ApiKey {
  std::string name;
  std::string tenant;                // whose prefix cache the holder shares
  Digest256 digest{};                // SHA-256 of the key
  std::optional<int64_t> expires_s;  // seconds since 1970; none: never
  bool revoked = false;
  KeyLimits limits;

  // Unique within a file.
  std::string id() const { return tenant + "/" + name; }
};

// The content of a file of keys:
//   {"keys": [{"name": "ci", "tenant": "acme", "sha256": "…64 hex digits…",
//              "expires": "2027-01-31T00:00:00Z", "revoked": false,
//              "limits": {"requests_per_second": 5}}]}
// Only name and sha256 are required; the tenant is the name by default. SHA-256 is enough, because
// keys are random and not passwords. Immutable after it was made, so thread-safe.
class ApiKeys final {
 public:
  static constexpr size_t kMaxFileBytes = size_t{16} << 20;
  static constexpr size_t kMaxKeys = 50'000;
  static constexpr size_t kMaxKeyBytes = 512;  // of a key that a client presents

  // Errors: InvalidArgument that names the entry and its member.
  static StatusOr<ApiKeys> Parse(std::string_view json);
  // Errors of ReadFile and Parse, which name the path.
  static StatusOr<ApiKeys> Load(const std::string& path);

  // The entry whose key is `key`; null when there is none. Does not check expiry or revocation.
  const ApiKey* Find(std::string_view key) const;
  const ApiKey* FindId(std::string_view id) const;

  // Adds a key. AlreadyExists when its id is in use; InvalidArgument for a wrong name or tenant.
  Status Add(ApiKey key);
  // Marks the key as revoked. NotFound when there is no such id.
  Status Revoke(std::string_view id);

  const std::vector<ApiKey>& keys() const { return keys_; }
  std::string ToJson() const;

  // A new random key, "baton-" and 43 characters.
  static std::string Generate();

 private:
  std::vector<ApiKey> keys_;
  std::map<Digest256, size_t> by_digest_;
  std::map<std::string, size_t, std::less<>> by_id_;
};

// "2027-01-31" or "2027-01-31T12:00:00Z" (RFC 3339) as seconds since 1970.
StatusOr<int64_t> ParseExpiry(std::string_view text);
std::string FormatExpiry(int64_t seconds);

}  // namespace baton
