#include "router/frontend/request_check.h"

#include <optional>
#include <string>

#include "common/cluster/request_fields.h"
#include "common/cluster/sampling_fields.h"
#include "common/text/utf8.h"
#include "router/request_error.h"

namespace baton::router {
namespace {

Status CheckFloat(std::string_view field, std::optional<float> value, const FloatRange& range) {
  return value.has_value() ? AtMember(CheckRange(field, *value, range), field) : OkStatus();
}

Status CheckInt(std::string_view field, int64_t value, int64_t low, int64_t high) {
  if (value >= low && value <= high) return OkStatus();
  return InvalidMember(field, "{} is {}; it must be between {} and {}", field, value, low, high);
}

// `what` is the beginning of the error: "the number of", "the length in bytes of".
Status CheckLength(
    std::string_view field, std::string_view what, size_t length, size_t low, size_t high) {
  if (length >= low && length <= high) return OkStatus();
  return InvalidMember(
      field, "{} {} is {}; it must be between {} and {}", what, field, length, low, high);
}

Status CheckUtf8(std::string_view field, std::string_view text) {
  if (IsValidUtf8(text)) return OkStatus();
  return InvalidMember(field, "{} is not valid UTF-8", field);
}

Status CheckSampling(const GenerationRequest& request, const RequestLimits& limits) {
  const SamplingInput& sampling = request.sampling;
  const auto name = [&](std::string_view field) {
    return fmt::format("{}{}", request.names.sampling, field);
  };
  for (const SamplingField& field : kSamplingFields) {
    BATON_RETURN_IF_ERROR(
        CheckFloat(name(field.name), sampling.*field.override_value, field.range));
  }
  const IntRange top_k{kTopKRange.low, limits.vocabulary};
  BATON_RETURN_IF_ERROR(AtMember(
      CheckRange(name("top_k"), sampling.top_k.value_or(top_k.low), top_k), name("top_k")));
  if (sampling.logit_bias.size() > limits.max_logit_bias) {
    return InvalidMember(name("logit_bias"),
                         "{} has {} entries; at most {} are allowed",
                         name("logit_bias"),
                         sampling.logit_bias.size(),
                         limits.max_logit_bias);
  }
  for (const auto& [token, bias] : sampling.logit_bias) {
    if (token < 0 || token >= limits.vocabulary) {
      return InvalidMember(name("logit_bias"),
                           "a key of {} is {}; it must be between 0 and {}",
                           name("logit_bias"),
                           token,
                           limits.vocabulary - 1);
    }
    BATON_RETURN_IF_ERROR(
        CheckFloat(fmt::format("{}[{}]", name("logit_bias"), token), bias, kLogitBiasRange));
  }
  return OkStatus();
}

Status CheckInput(const GenerationRequest& request, const RequestLimits& limits) {
  const FieldNames& names = request.names;
  if (const auto* text = std::get_if<std::string>(&request.input)) {
    return CheckUtf8(names.text, *text);
  }
  if (const auto* tokens = std::get_if<std::vector<TokenId>>(&request.input)) {
    if (tokens->empty()) {
      return InvalidMember(
          names.tokens, "{} is empty; a prompt needs at least one token", names.tokens);
    }
    for (size_t i = 0; i < tokens->size(); ++i) {
      if ((*tokens)[i] >= 0 && (*tokens)[i] < limits.vocabulary) continue;
      return CheckInt(
          fmt::format("{}[{}]", names.tokens, i), (*tokens)[i], 0, limits.vocabulary - 1);
    }
    return OkStatus();
  }
  if (const auto* pair = std::get_if<RerankInput>(&request.input)) {
    BATON_RETURN_IF_ERROR(CheckUtf8(names.text, pair->document));
    BATON_RETURN_IF_ERROR(CheckUtf8("query", pair->query));
    return CheckUtf8("instruction", pair->instruction);
  }
  const auto* chat = std::get_if<ChatInput>(&request.input);
  if (chat == nullptr) {
    return InvalidArgument("the request has no input; set one of text, chat or tokens");
  }
  if (chat->turns.empty()) return InvalidMember(names.messages, "{} is empty", names.messages);
  BATON_RETURN_IF_ERROR(
      CheckLength(names.messages, "the number of", chat->turns.size(), 1, limits.max_turns));
  for (size_t i = 0; i < chat->turns.size(); ++i) {
    const ChatTurn& turn = chat->turns[i];
    const std::string field = fmt::format("{}[{}]", names.messages, i);
    if (turn.role.empty()) return InvalidMember(field + ".role", "{}.role is empty", field);
    BATON_RETURN_IF_ERROR(CheckUtf8(field + ".role", turn.role));
    BATON_RETURN_IF_ERROR(CheckUtf8(field + ".content", turn.content));
  }
  return OkStatus();
}

Status CheckStops(const GenerationRequest& request, const RequestLimits& limits) {
  if (request.stop.size() > limits.max_stops) {
    return InvalidMember("stop",
                         "stop has {} strings; at most {} are allowed",
                         request.stop.size(),
                         limits.max_stops);
  }
  for (size_t i = 0; i < request.stop.size(); ++i) {
    const std::string field = fmt::format("stop[{}]", i);
    BATON_RETURN_IF_ERROR(CheckLength(
        field, "the length in bytes of", request.stop[i].size(), 1, limits.max_stop_bytes));
    BATON_RETURN_IF_ERROR(CheckUtf8(field, request.stop[i]));
  }
  if (request.stop_token_ids.size() > limits.max_stop_tokens) {
    return InvalidMember("stop_token_ids",
                         "stop_token_ids has {} entries; at most {} are allowed",
                         request.stop_token_ids.size(),
                         limits.max_stop_tokens);
  }
  for (size_t i = 0; i < request.stop_token_ids.size(); ++i) {
    BATON_RETURN_IF_ERROR(CheckInt(
        fmt::format("stop_token_ids[{}]", i), request.stop_token_ids[i], 0, limits.vocabulary - 1));
  }
  return OkStatus();
}

Status CheckPassed(const PassedOptions& passed) {
  for (const PassedField& field : kPassedFields) {
    const auto* const text = std::get_if<std::string PassedOptions::*>(&field.value);
    if (text == nullptr || !field.stated) continue;
    BATON_RETURN_IF_ERROR(CheckLength(
        field.name, "the length in bytes of", (passed.*(*text)).size(), 0, field.max_bytes));
  }
  return OkStatus();
}

}  // namespace

Status CheckRequest(const GenerationRequest& request, const RequestLimits& limits) {
  const FieldNames& names = request.names;
  BATON_RETURN_IF_ERROR(CheckInput(request, limits));
  BATON_RETURN_IF_ERROR(CheckSampling(request, limits));
  BATON_RETURN_IF_ERROR(CheckStops(request, limits));
  if (request.max_tokens.has_value()) {
    BATON_RETURN_IF_ERROR(CheckInt(names.max_tokens, *request.max_tokens, 1, INT32_MAX));
  }
  const int32_t longest = request.default_max_tokens.value_or(INT32_MAX);
  BATON_RETURN_IF_ERROR(
      CheckInt("min_tokens", request.min_tokens, 0, request.max_tokens.value_or(longest)));
  BATON_RETURN_IF_ERROR(CheckInt(names.samples, request.samples, 0, limits.max_samples));
  if (request.top_logprobs.has_value()) {
    BATON_RETURN_IF_ERROR(
        CheckInt(names.top_logprobs, *request.top_logprobs, 0, limits.max_top_logprobs));
  }
  if (request.prompt_logprobs.has_value()) {
    BATON_RETURN_IF_ERROR(
        CheckInt(names.prompt_logprobs, *request.prompt_logprobs, 0, limits.max_top_logprobs));
  }
  return CheckPassed(request);
}

Status CheckPromptLogprobs(const GenerationRequest& request, size_t prompt_tokens) {
  constexpr size_t kMaxLogprobs = 1 << 19;
  if (!request.prompt_logprobs.has_value()) return OkStatus();
  const std::string_view member = request.names.prompt_logprobs;
  const size_t each = static_cast<size_t>(*request.prompt_logprobs) + 1;
  if (each * prompt_tokens <= kMaxLogprobs) return OkStatus();
  return InvalidMember(member,
                       "{} is {} and the prompt has {} tokens, which makes {} logprobs; at most {} "
                       "are given",
                       member,
                       *request.prompt_logprobs,
                       prompt_tokens,
                       each * prompt_tokens,
                       kMaxLogprobs);
}

SamplingParams ResolveSampling(const GenerationRequest& request,
                               const GenerationDefaults& defaults,
                               uint64_t seed) {
  const SamplingInput& in = request.sampling;
  SamplingParams out;
  for (const SamplingField& field : kSamplingFields) {
    const std::optional<float>& of_model = defaults.*field.override_value;
    out.*field.value = (in.*field.override_value).value_or(of_model.value_or(out.*field.value));
  }
  out.top_k = in.top_k.value_or(defaults.top_k.value_or(out.top_k));
  out.seed = in.seed.value_or(seed);
  out.top_logprobs = request.top_logprobs.value_or(-1);
  out.logit_bias = in.logit_bias;
  return out;
}

}  // namespace baton::router
