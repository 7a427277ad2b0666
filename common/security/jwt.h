#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/status.h"
#include "common/security/jwt_key.h"

namespace baton {

// Which tokens are accepted, besides their signature.
struct JwtPolicy {
  std::string issuer;    // `iss` must equal it; empty: any
  std::string audience;  // `aud` must be it, or contain it; empty: any
};

// The caller whom a token names.
struct JwtClaims {
  std::string subject;  // `sub`
  std::string tenant;   // `tenant`, or the subject when there is none
};

// Verifies JSON Web Tokens (RFC 7519) with the public keys of a JWK set (RFC 7517). Accepts RS256
// with at least 2048 bits, ES256 and EdDSA with Ed25519. The key decides the algorithm: a token
// whose `alg` is another one is refused, "none" and HMAC among them. Immutable, so thread-safe.
class JwtKeys final {
 public:
  static constexpr size_t kMaxFileBytes = size_t{1} << 20;
  static constexpr size_t kMaxKeys = 100;
  static constexpr size_t kMaxTokenBytes = 8192;

  // Errors: InvalidArgument that names the key and its member. Keys for encryption, and of kinds
  // that are not used here, are skipped, but at least one usable key is needed.
  static StatusOr<JwtKeys> Parse(std::string_view json, JwtPolicy policy);

  // Errors of ReadFile and Parse, which name the path.
  static StatusOr<JwtKeys> Load(const std::string& path, JwtPolicy policy);

  // The claims of a token at the time `now_s`, in seconds since 1970. Unauthenticated that says
  // what is wrong, without repeating the token.
  StatusOr<JwtClaims> Verify(std::string_view token, int64_t now_s) const;

  // Whether `credential` has the form of a token: three parts with dots between them.
  static bool IsToken(std::string_view credential);

 private:
  explicit JwtKeys(JwtPolicy policy) : policy_(std::move(policy)) {}
  bool IsSigned(std::string_view id,
                std::string_view algorithm,
                std::string_view bytes,
                std::string_view signature) const;

  JwtPolicy policy_;
  std::vector<JwtKey> keys_;
};

}  // namespace baton
