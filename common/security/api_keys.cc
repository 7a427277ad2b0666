#include "common/security/api_keys.h"

#include <algorithm>
#include <cmath>

#include <absl/strings/ascii.h>
#include <absl/strings/escaping.h>
#include <absl/time/time.h>
#include <nlohmann/json.hpp>

#include "common/base/json.h"
#include "common/base/mapped_file.h"
#include "common/base/shortened.h"

namespace baton {
namespace {

using Json = nlohmann::json;

constexpr size_t kMaxName = 64;
constexpr size_t kKeyBytes = 32;
constexpr size_t kHexDigits = 64;
constexpr double kMaxLimit = 1e15;
constexpr std::string_view kPrefix = "baton-";
constexpr const char* kDate = "%Y-%m-%d";
constexpr const char* kTime = "%Y-%m-%dT%H:%M:%SZ";

bool IsName(std::string_view name) {
  return !name.empty() && name.size() <= kMaxName &&
         std::all_of(name.begin(), name.end(), [](char c) {
           return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_' ||
                  c == '.' || c == '@';
         });
}

Status CheckName(std::string_view member, std::string_view name) {
  if (IsName(name)) return OkStatus();
  return InvalidArgument("{} is \"{}\"; it must have 1 to {} letters, digits and -_.@",
                         member,
                         Shortened(std::string(name), kMaxName),
                         kMaxName);
}

// The members of an entry that set a limit, and where they are kept.
struct LimitField {
  std::string_view name;
  int64_t KeyLimits::*whole = nullptr;
  double KeyLimits::*real = nullptr;
};
constexpr LimitField kLimitFields[] = {
    {"requests_in_flight", &KeyLimits::requests_in_flight, nullptr},
    {"requests_per_second", nullptr, &KeyLimits::requests_per_second},
    {"tokens_per_second", nullptr, &KeyLimits::tokens_per_second},
    {"body_bytes", &KeyLimits::body_bytes, nullptr},
    {"prompt_tokens", &KeyLimits::prompt_tokens, nullptr},
    {"output_tokens", &KeyLimits::output_tokens, nullptr},
};

StatusOr<KeyLimits> ParseLimits(const Json& json) {
  if (!json.is_object()) return InvalidArgument("limits must be an object");
  KeyLimits limits;
  for (const auto& [name, value] : json.items()) {
    const auto* field = std::find_if(
        std::begin(kLimitFields), std::end(kLimitFields), [&wanted = name](const LimitField& one) {
          return one.name == wanted;
        });
    if (field == std::end(kLimitFields)) {
      return InvalidArgument("limits.{} is unknown", Shortened(name, kMaxName));
    }
    const double number = value.is_number() ? value.get<double>() : -1;
    const bool whole = field->whole == nullptr || number == std::floor(number);
    if (!(number > 0) || number > kMaxLimit || !whole) {
      return InvalidArgument("limits.{} must be a {}number above 0", name, whole ? "" : "whole ");
    }
    if (field->whole != nullptr) {
      limits.*field->whole = static_cast<int64_t>(number);
    } else {
      limits.*field->real = number;
    }
  }
  return limits;
}

StatusOr<std::string> TextOf(const std::string& name, const Json& value) {
  if (!value.is_string()) return InvalidArgument("{} must be a string", name);
  return value.get<std::string>();
}

StatusOr<Digest256> ParseDigest(const std::string& hex) {
  const bool digits = std::all_of(hex.begin(), hex.end(), [](char c) {
    return absl::ascii_isxdigit(static_cast<unsigned char>(c));
  });
  if (hex.size() != kHexDigits || !digits) {
    return InvalidArgument("sha256 must be the key's SHA-256 as {} hex digits", kHexDigits);
  }
  const std::string bytes = absl::HexStringToBytes(hex);
  Digest256 digest;
  std::copy(bytes.begin(), bytes.end(), digest.begin());
  return digest;
}

StatusOr<ApiKey> ParseKey(const Json& json) {
  if (!json.is_object()) return InvalidArgument("must be an object");
  ApiKey key;
  for (const auto& [name, value] : json.items()) {
    if (name == "revoked") {
      if (!value.is_boolean()) return InvalidArgument("revoked must be true or false");
      key.revoked = value.get<bool>();
    } else if (name == "limits") {
      BATON_ASSIGN_OR_RETURN(key.limits, ParseLimits(value));
    } else if (name == "name" || name == "tenant" || name == "sha256" || name == "expires") {
      BATON_ASSIGN_OR_RETURN(std::string text, TextOf(name, value));
      if (name == "name")
        key.name = std::move(text);
      else if (name == "tenant")
        key.tenant = std::move(text);
      else if (name == "expires") {
        BATON_ASSIGN_OR_RETURN(key.expires_s, ParseExpiry(text));
      } else {
        BATON_ASSIGN_OR_RETURN(key.digest, ParseDigest(text));
      }
    } else {
      return InvalidArgument("\"{}\" is unknown", Shortened(name, kMaxName));
    }
  }
  if (!json.contains("sha256")) return InvalidArgument("sha256 is missing");
  if (key.tenant.empty()) key.tenant = key.name;
  return key;
}

}  // namespace

StatusOr<int64_t> ParseExpiry(std::string_view text) {
  for (const char* format : {kTime, kDate}) {
    absl::Time time;
    if (absl::ParseTime(format, {text.data(), text.size()}, &time, nullptr)) {
      return absl::ToUnixSeconds(time);
    }
  }
  return InvalidArgument(
      "expires is \"{}\"; it must be a date such as 2027-01-31 or a time such as "
      "2027-01-31T12:00:00Z",
      Shortened(std::string(text), kMaxName));
}

std::string FormatExpiry(int64_t seconds) {
  return absl::FormatTime(kTime, absl::FromUnixSeconds(seconds), absl::UTCTimeZone());
}

StatusOr<ApiKeys> ApiKeys::Parse(std::string_view json) {
  BATON_ASSIGN_OR_RETURN(const Json root, ParseJson("the file of keys", json));
  if (!root.is_object() || !root.contains("keys") || !root["keys"].is_array() || root.size() != 1) {
    return InvalidArgument("the file of keys must be an object with one member \"keys\", an array");
  }
  const Json& list = root["keys"];
  if (list.size() > kMaxKeys) {
    return InvalidArgument("there are {} keys; at most {} are allowed", list.size(), kMaxKeys);
  }
  ApiKeys keys;
  for (size_t i = 0; i < list.size(); ++i) {
    StatusOr<ApiKey> key = ParseKey(list[i]);
    const Status added = key.ok() ? keys.Add(*std::move(key)) : key.status();
    if (!added.ok()) return InvalidArgument("keys[{}]: {}", i, Message(added));
  }
  return keys;
}

StatusOr<ApiKeys> ApiKeys::Load(const std::string& path) {
  BATON_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMaxFileBytes));
  StatusOr<ApiKeys> keys = Parse(text);
  if (!keys.ok()) return Annotate(keys.status(), path);
  return keys;
}

const ApiKey* ApiKeys::Find(std::string_view key) const {
  if (key.size() > kMaxKeyBytes) return nullptr;
  // The time of the look-up depends on a hash that nobody can choose, so it tells nothing of keys.
  const auto found = by_digest_.find(Sha256(key));
  return found == by_digest_.end() ? nullptr : &keys_[found->second];
}

const ApiKey* ApiKeys::FindId(std::string_view id) const {
  const auto found = by_id_.find(id);
  return found == by_id_.end() ? nullptr : &keys_[found->second];
}

Status ApiKeys::Add(ApiKey key) {
  BATON_RETURN_IF_ERROR(CheckName("name", key.name));
  BATON_RETURN_IF_ERROR(CheckName("tenant", key.tenant));
  if (by_id_.contains(key.id())) {
    return MakeStatus(StatusCode::kAlreadyExists, "there is already a key \"{}\"", key.id());
  }
  if (by_digest_.contains(key.digest)) {
    return MakeStatus(StatusCode::kAlreadyExists,
                      "\"{}\" has the same sha256 as \"{}\"",
                      key.id(),
                      keys_[by_digest_.at(key.digest)].id());
  }
  by_id_[key.id()] = keys_.size();
  by_digest_[key.digest] = keys_.size();
  keys_.push_back(std::move(key));
  return OkStatus();
}

Status ApiKeys::Revoke(std::string_view id) {
  const auto found = by_id_.find(id);
  if (found == by_id_.end()) {
    return MakeStatus(StatusCode::kNotFound, "there is no key \"{}\"", id);
  }
  keys_[found->second].revoked = true;
  return OkStatus();
}

std::string ApiKeys::ToJson() const {
  Json list = Json::array();
  for (const ApiKey& key : keys_) {
    Json entry = {
        {"name", key.name},
        {"tenant", key.tenant},
        {"sha256", absl::BytesToHexString({BytesOf(key.digest).data(), key.digest.size()})}};
    if (key.expires_s.has_value()) entry["expires"] = FormatExpiry(*key.expires_s);
    if (key.revoked) entry["revoked"] = true;
    for (const LimitField& field : kLimitFields) {
      const std::string name(field.name);
      if (field.whole != nullptr && key.limits.*field.whole > 0) {
        entry["limits"][name] = key.limits.*field.whole;
      } else if (field.real != nullptr && key.limits.*field.real > 0) {
        entry["limits"][name] = key.limits.*field.real;
      }
    }
    list.push_back(std::move(entry));
  }
  return Json{{"keys", std::move(list)}}.dump(2) + "\n";
}

std::string ApiKeys::Generate() {
  return std::string(kPrefix) + Base64Url(RandomBytes(kKeyBytes));
}

}  // namespace baton
