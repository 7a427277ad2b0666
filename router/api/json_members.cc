#include "router/api/json_members.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

#include <nlohmann/json.hpp>

#include "common/base/json.h"
#include "router/request_error.h"

namespace baton::router {
namespace {

using Json = nlohmann::ordered_json;

template <class T>
Status ReadNumber(const Json& object, std::string_view name, std::optional<T>& out) {
  const Json* value = Member(object, name);
  if (value == nullptr) return OkStatus();
  if (value->is_number_unsigned()) {
    const auto number = value->get<uint64_t>();
    if (number <= static_cast<uint64_t>(std::numeric_limits<T>::max())) {
      out = static_cast<T>(number);
      return OkStatus();
    }
  } else if (value->is_number_integer()) {
    const auto number = value->get<int64_t>();
    if (std::is_signed_v<T> && number >= std::numeric_limits<T>::min()) {
      out = static_cast<T>(number);
      return OkStatus();
    }
  } else {
    return Wrong(name, "an integer");
  }
  return InvalidMember(name, "{} is {}; it is out of range", name, value->dump());
}

}  // namespace

const Json* Member(const Json& object, std::string_view name) {
  const auto it = object.find(name);
  return it == object.end() || it->is_null() ? nullptr : &*it;
}

Status Wrong(std::string_view name, std::string_view wanted) {
  return InvalidMember(name, "{} must be {}", name, wanted);
}

Status Unsupported(std::string_view name, std::string_view why) {
  return WithReason(InvalidMember(name, "{} {}", name, why), reason::kUnsupportedParameter);
}

StatusOr<float> ReadFloat(std::string_view name, const Json& value) {
  if (!value.is_number()) return Wrong(name, "a number");
  const auto number = value.get<double>();
  if (std::abs(number) <= std::numeric_limits<float>::max()) return static_cast<float>(number);
  return InvalidMember(name, "{} is {}; it is out of range", name, value.dump());
}

Status Read(const Json& object, std::string_view name, std::optional<float>& out) {
  const Json* value = Member(object, name);
  if (value == nullptr) return OkStatus();
  BATON_ASSIGN_OR_RETURN(out, ReadFloat(name, *value));
  return OkStatus();
}

Status ReadInt(const Json& object, std::string_view name, std::optional<int32_t>& out) {
  return ReadNumber(object, name, out);
}

Status ReadInt(const Json& object, std::string_view name, std::optional<int64_t>& out) {
  return ReadNumber(object, name, out);
}

Status ReadBool(const Json& object, const char* name, bool& out) {
  const Json* value = Member(object, name);
  if (value == nullptr) return OkStatus();
  if (!value->is_boolean()) return Wrong(name, "true or false");
  out = value->get<bool>();
  return OkStatus();
}

Status ReadString(const Json& object,
                  std::string_view name,
                  std::string& out,
                  const std::string& parent) {
  const Json* value = Member(object, name);
  if (value == nullptr) return OkStatus();
  if (!value->is_string()) return Wrong(fmt::format("{}{}", parent, name), "a string");
  out = value->get<std::string>();
  return OkStatus();
}

StatusOr<std::vector<TokenId>> ReadTokens(std::string_view name, const Json& value) {
  std::vector<TokenId> out;
  out.reserve(value.size());
  for (const Json& id : value) {
    if (!id.is_number_integer() || id.get<int64_t>() < 0 || id.get<int64_t>() > INT32_MAX) {
      return Wrong(name, "an array of token ids");
    }
    out.push_back(static_cast<TokenId>(id.get<int64_t>()));
  }
  return out;
}

Status ReadStrings(const Json& object, const char* name, std::vector<std::string>& out) {
  const Json* value = Member(object, name);
  if (value == nullptr) return OkStatus();
  if (value->is_string()) {
    out.push_back(value->get<std::string>());
    return OkStatus();
  }
  const bool strings =
      value->is_array() &&
      std::all_of(value->begin(), value->end(), [](auto& one) { return one.is_string(); });
  if (!strings) return Wrong(name, "a string or an array of strings");
  for (const Json& one : *value) out.push_back(one.get<std::string>());
  return OkStatus();
}

StatusOr<Json> ParseBody(std::string_view text) {
  StatusOr<Json> body = ParseOrderedJson("the body", text);
  if (!body.ok()) {
    const std::string member = TooDeepMember(body.status());
    return member.empty() ? body.status() : AtMember(body.status(), member);
  }
  if (!body->is_object()) return InvalidArgument("the body must be a JSON object");
  return body;
}

Status CheckKnown(const Json& object,
                  const std::string& parent,
                  std::initializer_list<std::string_view> known,
                  std::span<const std::string_view> shared) {
  for (const auto& [name, value] : object.items()) {
    if (value.is_null() || std::ranges::count(known, name) > 0) continue;
    if (std::ranges::count(shared, name) > 0) continue;
    const std::string path = parent + Shown(name);
    return WithReason(InvalidMember(path, "{} is not a known member", path),
                      reason::kUnknownParameter);
  }
  return OkStatus();
}

}  // namespace baton::router
