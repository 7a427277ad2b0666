#include "common/security/authenticator.h"

#include <chrono>
#include <utility>

#include <absl/strings/escaping.h>
#include <absl/strings/match.h>

#include "common/base/shortened.h"
#include "common/security/caller_name.h"

namespace baton {
namespace {

constexpr std::string_view kBearer = "bearer ";
constexpr std::string_view kBasic = "basic ";
constexpr std::string_view kTokenId = "jwt/";
// Follows the name. The id of a key cannot end like this.
constexpr std::string_view kCertificateId = "/(certificate)";
constexpr size_t kShownName = 64;

Status Unauthenticated(const std::string& message) {
  return Status(StatusCode::kUnauthenticated, message);
}

int64_t UnixSeconds() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::seconds>(now).count();
}

Caller CallerOf(const ApiKey& key) {
  return {key.id(), key.tenant, key.limits};
}

Caller CallerOf(const JwtClaims& claims) {
  return {fmt::format("{}{}/{}", kTokenId, claims.tenant, claims.subject), claims.tenant, {}};
}

Caller CallerOfCertificate(std::string_view name) {
  return {fmt::format("{}{}", name, kCertificateId), std::string(name), {}};
}

bool HasScheme(std::string_view value, std::string_view scheme) {
  return absl::StartsWithIgnoreCase({value.data(), value.size()}, {scheme.data(), scheme.size()});
}

}  // namespace

StatusOr<std::unique_ptr<Authenticator>> Authenticator::Open(const Files& files,
                                                             Refusals& refusals) {
  BATON_ASSIGN_OR_RETURN(auto keys,
                         ReloadedFile<ApiKeys>::Open(
                             FileWatch(files.keys, files.look_every), &ApiKeys::Load, refusals));
  const auto load_tokens = [policy = files.policy](const std::string& path) {
    return JwtKeys::Load(path, policy);
  };
  BATON_ASSIGN_OR_RETURN(
      auto tokens,
      ReloadedFile<JwtKeys>::Open(FileWatch(files.jwks, files.look_every), load_tokens, refusals));
  return std::unique_ptr<Authenticator>(
      new Authenticator(std::move(keys), std::move(tokens), files.certificates));
}

StatusOr<Caller> Authenticator::OfCertificate(std::string_view name) const {
  if (IsCallerName(name)) return CallerOfCertificate(name);
  return Unauthenticated(
      fmt::format("the common name of the client's certificate is \"{}\"; it must have 1 to 128 "
                  "printable ASCII characters, and neither spaces nor slashes",
                  Shortened(std::string(name), kShownName)));
}

StatusOr<Caller> Authenticator::Authenticate(std::string_view credential,
                                             std::string_view certificate) {
  if (credential.empty()) {
    if (certificates_ && !certificate.empty()) return OfCertificate(certificate);
    return Unauthenticated(fmt::format(
        "an API key{} is missing; send the key as \"Authorization: Bearer KEY\" or \"x-api-key: "
        "KEY\"",
        certificates_ ? " or a client's certificate" : ""));
  }
  if (const auto tokens = tokens_.Get(); tokens != nullptr && JwtKeys::IsToken(credential)) {
    BATON_ASSIGN_OR_RETURN(const JwtClaims claims, tokens->Verify(credential, UnixSeconds()));
    return CallerOf(claims);
  }
  const std::shared_ptr<const ApiKeys> keys = keys_.Get();
  const ApiKey* const found = keys == nullptr ? nullptr : keys->Find(credential);
  if (found == nullptr) return Unauthenticated("the API key is not valid here");
  if (found->revoked) {
    return Unauthenticated(fmt::format("the API key \"{}\" was revoked", found->id()));
  }
  if (found->expires_s.has_value() && *found->expires_s <= UnixSeconds()) {
    return Unauthenticated(fmt::format(
        "the API key \"{}\" expired at {}", found->id(), FormatExpiry(*found->expires_s)));
  }
  return CallerOf(*found);
}

std::optional<Caller> Authenticator::Find(std::string_view id) {
  // The ids of keys and certificates have one slash.
  const size_t last = id.rfind('/');
  if (id.starts_with(kTokenId) && last != std::string_view::npos && last >= kTokenId.size()) {
    const std::string tenant(id.substr(kTokenId.size(), last - kTokenId.size()));
    return CallerOf(JwtClaims{std::string(id.substr(last + 1)), tenant});
  }
  if (id.ends_with(kCertificateId)) {
    if (!certificates_) return std::nullopt;
    return CallerOfCertificate(id.substr(0, id.size() - kCertificateId.size()));
  }
  const std::shared_ptr<const ApiKeys> keys = keys_.Get();
  const ApiKey* const found = keys == nullptr ? nullptr : keys->FindId(id);
  if (found == nullptr) return std::nullopt;
  return CallerOf(*found);
}

std::string KeyOfAuthorization(std::string_view value) {
  if (HasScheme(value, kBearer)) {
    value.remove_prefix(kBearer.size());
    while (value.starts_with(' ')) value.remove_prefix(1);
    return std::string(value);
  }
  if (!HasScheme(value, kBasic)) return "";
  value.remove_prefix(kBasic.size());
  std::string decoded;
  if (!absl::Base64Unescape({value.data(), value.size()}, &decoded)) return "";
  const size_t colon = decoded.find(':');
  return colon == std::string::npos ? "" : decoded.substr(colon + 1);
}

}  // namespace baton
