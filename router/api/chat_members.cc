#include "router/api/chat_members.h"

#include <charconv>
#include <chrono>
#include <optional>
#include <variant>
#include <vector>

#include <nlohmann/json.hpp>

#include "common/cluster/request_fields.h"
#include "router/api/json_members.h"
#include "router/request_error.h"

namespace baton::router {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kMaxTimeoutMs = int64_t{24} * 3600 * 1000;

Status ReadLogitBias(const Json& body, SamplingInput& out) {
  const Json* bias = Member(body, "logit_bias");
  if (bias == nullptr) return OkStatus();
  if (!bias->is_object()) return Wrong("logit_bias", "an object that maps token ids to numbers");
  for (const auto& [key, value] : bias->items()) {
    TokenId token = 0;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), token);
    if (error != std::errc() || end != key.data() + key.size() || !value.is_number()) {
      return Wrong("logit_bias", "an object that maps token ids to numbers");
    }
    BATON_ASSIGN_OR_RETURN(const float number,
                           ReadFloat(fmt::format("logit_bias[{}]", token), value));
    out.logit_bias.emplace_back(token, number);
  }
  return OkStatus();
}

Status ReadValue(const Json& body, std::string_view name, int32_t& out) {
  std::optional<int32_t> value;
  BATON_RETURN_IF_ERROR(ReadInt(body, name, value));
  out = value.value_or(out);
  return OkStatus();
}

Status ReadValue(const Json& body, std::string_view name, std::string& out) {
  return ReadString(body, name, out);
}

bool IsTextPart(const Json& part) {
  if (!part.is_object() || !part.contains("text") || !part["text"].is_string()) return false;
  const Json type = part.value("type", Json());
  return type == "text" || type == "input_text" || type == "output_text";
}

}  // namespace

StatusOr<std::string> ReadContent(const Json& content, const std::string& name) {
  if (content.is_string()) return content.get<std::string>();
  if (!content.is_array()) return Wrong(name, "a string or an array of text parts");
  std::string text;
  for (size_t i = 0; i < content.size(); ++i) {
    if (!IsTextPart(content[i])) return Wrong(fmt::format("{}[{}]", name, i), "a text part");
    text += content[i]["text"].get<std::string>();
  }
  return text;
}

std::span<const std::string_view> SharedMembers() {
  static const auto* const names = [] {
    auto* all = new std::vector<std::string_view>{"logit_bias", "seed", "timeout_ms", "top_k"};
    for (const SamplingField& field : kSamplingFields) all->push_back(field.name);
    for (const PassedField& field : kPassedFields) {
      if (field.stated) all->push_back(field.name);
    }
    return all;
  }();
  return *names;
}

Status ReadSampling(const Json& body, SamplingInput& out) {
  for (const SamplingField& field : kSamplingFields) {
    BATON_RETURN_IF_ERROR(Read(body, field.name, out.*field.override_value));
  }
  BATON_RETURN_IF_ERROR(ReadInt(body, "top_k", out.top_k));
  if (out.top_k == -1) out.top_k = 0;
  std::optional<int64_t> seed;
  BATON_RETURN_IF_ERROR(ReadInt(body, "seed", seed));
  if (seed.has_value() && *seed != -1) out.seed = static_cast<uint64_t>(*seed);
  return ReadLogitBias(body, out);
}

Status ReadPassed(const Json& body, GenerationRequest& out) {
  for (const PassedField& field : kPassedFields) {
    if (!field.stated) continue;
    BATON_RETURN_IF_ERROR(std::visit(
        [&](const auto member) { return ReadValue(body, field.name, out.*member); }, field.value));
  }
  std::optional<int64_t> timeout;
  BATON_RETURN_IF_ERROR(ReadInt(body, "timeout_ms", timeout));
  if (!timeout.has_value()) return OkStatus();
  if (*timeout < 1 || *timeout > kMaxTimeoutMs) {
    return InvalidMember(
        "timeout_ms", "timeout_ms is {}; it must be between 1 and {}", *timeout, kMaxTimeoutMs);
  }
  out.timeout = std::chrono::milliseconds(*timeout);
  return OkStatus();
}

}  // namespace baton::router
