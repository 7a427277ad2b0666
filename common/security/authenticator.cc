#include "common/security/authenticator.h"

#include <chrono>
#include <utility>

#include <absl/strings/escaping.h>
#include <absl/strings/match.h>

#include "common/log/log.h"

namespace baton {
namespace {

constexpr std::string_view kBearer = "bearer ";
constexpr std::string_view kBasic = "basic ";

const Logger kLog("security");

Status Unauthenticated(std::string message) {
  return Status(StatusCode::kUnauthenticated, std::move(message));
}

int64_t UnixSeconds() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::seconds>(now).count();
}

Caller CallerOf(const ApiKey& key) {
  return {key.id(), key.tenant, key.limits};
}

bool HasScheme(std::string_view value, std::string_view scheme) {
  return absl::StartsWithIgnoreCase({value.data(), value.size()}, {scheme.data(), scheme.size()});
}

}  // namespace

StatusOr<std::unique_ptr<Authenticator>> Authenticator::Open(const std::string& keys_file,
                                                             Refusals& refusals) {
  FileWatch watch(keys_file);  // before the file is read, so that no change is missed
  BATON_ASSIGN_OR_RETURN(ApiKeys keys, ApiKeys::Load(keys_file));
  return std::unique_ptr<Authenticator>(
      new Authenticator(std::move(watch), std::move(keys), refusals));
}

Authenticator::Authenticator(FileWatch watch, ApiKeys keys, Refusals& refusals)
    : refusals_(refusals),
      watch_(std::move(watch)),
      keys_(std::make_shared<const ApiKeys>(std::move(keys))) {}

std::shared_ptr<const ApiKeys> Authenticator::Keys() {
  std::lock_guard lock(mutex_);
  if (!watch_.Changed(SteadyClock().Now())) return keys_;
  StatusOr<ApiKeys> keys = ApiKeys::Load(watch_.path());
  if (keys.ok()) {
    kLog.Info("{}: read {} keys", watch_.path(), keys->keys().size());
    keys_ = std::make_shared<const ApiKeys>(*std::move(keys));
  } else {
    refusals_.probe().OnReloadFailed();
    kLog.Error("the changed file of keys cannot be read, so the earlier keys stay valid: {}",
               Message(keys.status()));
  }
  return keys_;
}

StatusOr<Caller> Authenticator::Authenticate(std::string_view key) {
  if (key.empty()) {
    return Unauthenticated(
        "an API key is missing; send it as \"Authorization: Bearer KEY\" or \"x-api-key: KEY\"");
  }
  const std::shared_ptr<const ApiKeys> keys = Keys();
  const ApiKey* const found = keys->Find(key);
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
  const std::shared_ptr<const ApiKeys> keys = Keys();
  const ApiKey* const found = keys->FindId(id);
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
