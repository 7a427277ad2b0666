#pragma once

#include <memory>
#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

#include "common/base/status.h"

struct evp_pkey_st;

namespace baton {

// A public key of a JWK set, and the one algorithm that it verifies.
class JwtKey final {
 public:
  // NotFound for a key that is not for signatures or of a kind that is not used here.
  // InvalidArgument for a malformed or weak key.
  static StatusOr<JwtKey> Parse(const nlohmann::json& jwk);

  const std::string& id() const { return id_; }                // `kid`; may be empty
  const std::string& algorithm() const { return algorithm_; }  // "RS256", "ES256" or "EdDSA"
  // Whether `signature` is the key's over `bytes`.
  bool Verifies(std::string_view bytes, std::string_view signature) const;

 private:
  struct Free {
    void operator()(evp_pkey_st* key) const;
  };
  using Handle = std::unique_ptr<evp_pkey_st, Free>;

  JwtKey(std::string id, std::string algorithm, Handle key)
      : id_(std::move(id)), algorithm_(std::move(algorithm)), key_(std::move(key)) {}

  static StatusOr<Handle> ParseRsa(const nlohmann::json& jwk);
  static StatusOr<Handle> ParseEc(const nlohmann::json& jwk);
  static StatusOr<Handle> ParseEd25519(const nlohmann::json& jwk);

  std::string id_;
  std::string algorithm_;
  Handle key_;
};

}  // namespace baton
