#include "common/security/jwt.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include <absl/strings/escaping.h>
#include <nlohmann/json.hpp>

#include "common/base/json.h"
#include "common/base/mapped_file.h"
#include "common/security/caller_name.h"

namespace baton {
namespace {

using Json = nlohmann::json;

constexpr int64_t kSkewSeconds = 60;  // that clocks of issuer and router may differ

Status Refused(std::string_view why) {
  return MakeStatus(StatusCode::kUnauthenticated, "the token is refused: {}", why);
}

StatusOr<Json> PartOf(std::string_view text, std::string_view what) {
  std::string bytes;
  if (!absl::WebSafeBase64Unescape({text.data(), text.size()}, &bytes)) {
    return Refused(fmt::format("its {} is not base64url", what));
  }
  StatusOr<Json> json = ParseJson(what, bytes);
  if (!json.ok() || !json->is_object()) {
    return Refused(fmt::format("its {} is not a JSON object", what));
  }
  return json;
}

std::string TextOf(const Json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

// Seconds since 1970 (RFC 7519, section 2); nothing when the claim is absent.
StatusOr<std::optional<double>> TimeOf(const Json& claims, const char* name) {
  const auto found = claims.find(name);
  if (found == claims.end()) return std::optional<double>();
  if (!found->is_number() || !std::isfinite(found->get<double>())) {
    return Refused(fmt::format("its \"{}\" is not a time", name));
  }
  return std::optional<double>(found->get<double>());
}

Status CheckTimes(const Json& claims, int64_t now_s) {
  const auto now = static_cast<double>(now_s);
  BATON_ASSIGN_OR_RETURN(const std::optional<double> expires, TimeOf(claims, "exp"));
  if (!expires.has_value()) return Refused("it has no \"exp\", so it would be valid for ever");
  if (now >= *expires + kSkewSeconds) return Refused("it has expired");
  BATON_ASSIGN_OR_RETURN(const std::optional<double> begins, TimeOf(claims, "nbf"));
  if (begins.has_value() && now < *begins - kSkewSeconds) return Refused("it is not valid yet");
  return OkStatus();
}

bool HasAudience(const Json& claims, const std::string& audience) {
  const auto found = claims.find("aud");
  if (found == claims.end()) return false;
  if (!found->is_array()) return *found == audience;
  return std::find(found->begin(), found->end(), audience) != found->end();
}

}  // namespace

bool JwtKeys::IsToken(std::string_view credential) {
  return std::count(credential.begin(), credential.end(), '.') == 2;
}

StatusOr<JwtKeys> JwtKeys::Parse(std::string_view json, JwtPolicy policy) {
  BATON_ASSIGN_OR_RETURN(const Json root, ParseJson("the JWK set", json));
  if (!root.is_object() || !root.contains("keys") || !root["keys"].is_array()) {
    return InvalidArgument("the JWK set must be an object with the member \"keys\", an array");
  }
  const Json& list = root["keys"];
  if (list.size() > kMaxKeys) {
    return InvalidArgument(
        "the JWK set has {} keys; at most {} are allowed", list.size(), kMaxKeys);
  }
  JwtKeys keys(std::move(policy));
  for (size_t i = 0; i < list.size(); ++i) {
    StatusOr<JwtKey> key = JwtKey::Parse(list[i]);
    if (key.ok()) {
      keys.keys_.push_back(*std::move(key));
    } else if (key.status().code() != StatusCode::kNotFound) {
      return InvalidArgument("keys[{}]: {}", i, Message(key.status()));
    }
  }
  if (keys.keys_.empty()) {
    return InvalidArgument("the JWK set has no key for RS256, ES256 (P-256) or EdDSA (Ed25519)");
  }
  return keys;
}

StatusOr<JwtKeys> JwtKeys::Load(const std::string& path, JwtPolicy policy) {
  BATON_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMaxFileBytes));
  StatusOr<JwtKeys> keys = Parse(text, std::move(policy));
  if (!keys.ok()) return Annotate(keys.status(), path);
  return keys;
}

bool JwtKeys::IsSigned(std::string_view id,
                       std::string_view algorithm,
                       std::string_view bytes,
                       std::string_view signature) const {
  return std::any_of(keys_.begin(), keys_.end(), [&](const JwtKey& key) {
    return key.algorithm() == algorithm && (id.empty() || key.id().empty() || key.id() == id) &&
           key.Verifies(bytes, signature);
  });
}

StatusOr<JwtClaims> JwtKeys::Verify(std::string_view token, int64_t now_s) const {
  if (token.size() > kMaxTokenBytes) {
    return Refused(
        fmt::format("it has {} bytes; at most {} are allowed", token.size(), kMaxTokenBytes));
  }
  if (!IsToken(token)) return Refused("it does not have three parts");
  const size_t first = token.find('.');
  const size_t second = token.find('.', first + 1);
  BATON_ASSIGN_OR_RETURN(const Json header, PartOf(token.substr(0, first), "header"));
  // RFC 7515, section 4.1.11: an extension that must be understood, and none is.
  if (header.contains("crit")) return Refused("its header has \"crit\"");
  std::string signature;
  const std::string_view encoded = token.substr(second + 1);
  if (!absl::WebSafeBase64Unescape({encoded.data(), encoded.size()}, &signature)) {
    return Refused("its signature is not base64url");
  }
  if (!IsSigned(TextOf(header, "kid"), TextOf(header, "alg"), token.substr(0, second), signature)) {
    return Refused("no key of security.jwks_file has signed it with RS256, ES256 or EdDSA");
  }
  BATON_ASSIGN_OR_RETURN(const Json claims,
                         PartOf(token.substr(first + 1, second - first - 1), "payload"));
  BATON_RETURN_IF_ERROR(CheckTimes(claims, now_s));
  if (!policy_.issuer.empty() && TextOf(claims, "iss") != policy_.issuer) {
    return Refused("its \"iss\" is not security.jwt_issuer");
  }
  if (!policy_.audience.empty() && !HasAudience(claims, policy_.audience)) {
    return Refused("its \"aud\" does not contain security.jwt_audience");
  }
  JwtClaims result{TextOf(claims, "sub"), TextOf(claims, "tenant")};
  if (!IsCallerName(result.subject)) return Refused("its \"sub\" is not a name");
  if (!claims.contains("tenant")) result.tenant = result.subject;
  if (!IsCallerName(result.tenant)) return Refused("its \"tenant\" is not a name");
  return result;
}

}  // namespace baton
