#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "common/base/ids.h"
#include "common/base/status.h"

// Reads the members of a JSON object, which may be absent or null. Objects keep the order of their
// members, because chat templates show it. Errors: InvalidArgument naming the member at fault,
// which is `name` behind `parent` ("tools[0].").
namespace baton::router {

// The member; nullptr when it is absent or null.
const nlohmann::ordered_json* Member(const nlohmann::ordered_json& object, std::string_view name);

// The error that the member `name` is not `wanted` ("a string").
Status Wrong(std::string_view name, std::string_view wanted);
// The same with reason::kUnsupportedParameter.
Status Unsupported(std::string_view name, std::string_view why);

// A number that is not outside of all ranges.
StatusOr<float> ReadFloat(std::string_view name, const nlohmann::ordered_json& value);
Status Read(const nlohmann::ordered_json& object, std::string_view name, std::optional<float>& out);
Status ReadInt(const nlohmann::ordered_json& object,
               std::string_view name,
               std::optional<int32_t>& out);
Status ReadInt(const nlohmann::ordered_json& object,
               std::string_view name,
               std::optional<int64_t>& out);
Status ReadBool(const nlohmann::ordered_json& object, const char* name, bool& out);
Status ReadString(const nlohmann::ordered_json& object,
                  std::string_view name,
                  std::string& out,
                  const std::string& parent = "");
StatusOr<std::vector<TokenId>> ReadTokens(std::string_view name,
                                          const nlohmann::ordered_json& value);
// A string, or an array of strings.
Status ReadStrings(const nlohmann::ordered_json& object,
                   const char* name,
                   std::vector<std::string>& out);

// The body of a request, an object. Errors name the member that is nested too deeply.
StatusOr<nlohmann::ordered_json> ParseBody(std::string_view text);

// Refuses members of `object` that are neither in `known` nor in `shared`.
Status CheckKnown(const nlohmann::ordered_json& object,
                  const std::string& parent,
                  std::initializer_list<std::string_view> known,
                  std::span<const std::string_view> shared = {});

}  // namespace baton::router
