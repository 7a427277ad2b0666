#include "router/api/chat_members.h"

#include <charconv>
#include <chrono>
#include <optional>

#include <nlohmann/json.hpp>

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
    out.logit_bias.push_back({token, static_cast<float>(value.get<double>())});
  }
  return OkStatus();
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

Status ReadSampling(const Json& body, SamplingInput& out) {
  for (const SamplingField& field : kSamplingFields) {
    BATON_RETURN_IF_ERROR(Read(body, field.name, out.*field.override_value));
  }
  BATON_RETURN_IF_ERROR(ReadInt(body, "top_k", out.top_k));
  // vLLM accepts -1 for "no limit"; here 0 means no limit.
  if (out.top_k == -1) out.top_k = 0;
  std::optional<int64_t> seed;
  BATON_RETURN_IF_ERROR(ReadInt(body, "seed", seed));
  if (seed.has_value()) out.seed = static_cast<uint64_t>(*seed);
  return ReadLogitBias(body, out);
}

Status ReadPassed(const Json& body, GenerationRequest& out) {
  std::optional<int32_t> priority;
  BATON_RETURN_IF_ERROR(ReadInt(body, "priority", priority));
  out.priority = priority.value_or(0);
  BATON_RETURN_IF_ERROR(ReadString(body, "cache_salt", out.cache_salt));
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
