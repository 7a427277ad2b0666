#include "common/engine/request_check.h"

#include <cmath>
#include <span>
#include <string_view>

#include "common/cluster/sampling_fields.h"

namespace baton {
namespace {

constexpr size_t kMaxStopTokens = 1024;
constexpr int32_t kMaxTopLogprobs = 256;

Status InVocabulary(std::string_view field, TokenId token, int32_t vocabulary) {
  if (token >= 0 && token < vocabulary) return OkStatus();
  return InvalidArgument("{} has token id {}; ids are 0 to {}", field, token, vocabulary - 1);
}

Status CheckSampling(const SamplingParams& params, int32_t vocabulary) {
  for (const SamplingField& field : kSamplingFields) {
    BATON_RETURN_IF_ERROR(CheckRange(field.name, params.*field.value, field.range));
  }
  BATON_RETURN_IF_ERROR(CheckRange("top_k", params.top_k, kTopKRange));
  if (params.top_logprobs < -1 || params.top_logprobs > kMaxTopLogprobs) {
    return InvalidArgument("top_logprobs is {}; it must be between -1 (none) and {}",
                           params.top_logprobs,
                           kMaxTopLogprobs);
  }
  for (const auto& [token, bias] : params.logit_bias) {
    BATON_RETURN_IF_ERROR(InVocabulary("logit_bias", token, vocabulary));
    BATON_RETURN_IF_ERROR(CheckRange("logit_bias", bias, kLogitBiasRange));
  }
  return OkStatus();
}

Status CheckLengths(const Request& request, const RequestLimits& limits) {
  const auto length = static_cast<int64_t>(request.tokens.size());
  if (request.tokens.empty()) return InvalidArgument("the prompt is empty; it needs one token");
  if (length >= limits.context_length) {
    return InvalidArgument(
        "the prompt has {} tokens; the model's context of {} leaves room for at most {}",
        length,
        limits.context_length,
        limits.context_length - 1);
  }
  if (request.prompt_length < 1 || request.prompt_length > length) {
    return InvalidArgument("prompt_length is {}; it must be between 1 and the {} tokens given",
                           request.prompt_length,
                           length);
  }
  if (request.max_tokens < 1) {
    return InvalidArgument("max_tokens is {}; it must be at least 1", request.max_tokens);
  }
  if (request.min_tokens < 0 || request.min_tokens > request.max_tokens) {
    return InvalidArgument("min_tokens is {}; it must be between 0 and max_tokens, {}",
                           request.min_tokens,
                           request.max_tokens);
  }
  const int64_t resumed = length - request.prompt_length;
  if (resumed >= request.max_tokens) {
    return InvalidArgument(
        "the request already has {} output tokens; max_tokens is {}, so none is "
        "left to generate",
        resumed,
        request.max_tokens);
  }
  if (resumed > 0 && request.samples != 1) {
    return InvalidArgument("a resumed request has {} samples; it must have 1", request.samples);
  }
  return OkStatus();
}

Status CheckPromptLogprobs(const Request& request, const RequestLimits& limits) {
  if (request.prompt_logprobs < -1 || request.prompt_logprobs > kMaxTopLogprobs) {
    return InvalidArgument("prompt_logprobs is {}; it must be between -1 (none) and {}",
                           request.prompt_logprobs,
                           kMaxTopLogprobs);
  }
  if (request.prompt_logprobs >= 0 && limits.scored_rows < 1) {
    return InvalidArgument("prompt_logprobs: this engine has logit rows for its sequences only");
  }
  return OkStatus();
}

// The results of requests that end with their prompt come from one step of one worker.
Status CheckPromptResult(const Request& request, const RequestLimits& limits) {
  if (!request.ends_with_prompt()) return OkStatus();
  const auto samples = static_cast<int32_t>(request.pools() ? 1 : request.labels.size());
  if (request.samples != samples || request.first_sample != 0 || request.max_tokens != 1) {
    return InvalidArgument(
        "a request that {} has samples {} … {} of {} tokens; it must have {} of 1 token",
        request.pools() ? "pools" : "scores labels",
        request.first_sample,
        request.first_sample + request.samples - 1,
        request.max_tokens,
        samples);
  }
  if (request.pools() && !request.labels.empty()) {
    return InvalidArgument("a request pools and scores labels; it must have one of both");
  }
  if (request.kind != RequestKind::kServe) {
    return InvalidArgument("a request that ends with its prompt cannot be handed off");
  }
  if (!request.grammar.empty() || request.prompt_logprobs >= 0) {
    return InvalidArgument("grammar and prompt_logprobs need a request that generates");
  }
  const bool all_rows = request.pooling == Pooling::kMean || request.pooling == Pooling::kFirst;
  if (all_rows && limits.scored_rows < 1) {
    return InvalidArgument("pooling: this engine has logit rows for its sequences only");
  }
  return OkStatus();
}

// A constrained output ends with a stop token, exactly where its grammar ends.
Status CheckConstrained(const Request& request) {
  if (request.grammar.empty()) return OkStatus();
  if (request.min_tokens > 0) {
    return InvalidArgument("min_tokens is {}; it must be 0 for constrained output",
                           request.min_tokens);
  }
  if (request.stop_tokens.empty()) {
    return InvalidArgument("constrained output needs a stop token, by which it ends");
  }
  return OkStatus();
}

}  // namespace

Status CheckRequest(const Request& request, const RequestLimits& limits) {
  if (request.samples < 1 || request.samples > limits.max_samples) {
    return InvalidArgument("{} samples are requested; the number must be between 1 and {}",
                           request.samples,
                           limits.max_samples);
  }
  if (request.first_sample < 0) {
    return InvalidArgument("first_sample is {}; it must be 0 or more", request.first_sample);
  }
  BATON_RETURN_IF_ERROR(CheckLengths(request, limits));
  if (request.stop_tokens.size() > kMaxStopTokens) {
    return InvalidArgument(
        "{} stop tokens; at most {} are possible", request.stop_tokens.size(), kMaxStopTokens);
  }
  for (TokenId token : request.tokens) {
    BATON_RETURN_IF_ERROR(InVocabulary("the prompt", token, limits.vocabulary));
  }
  for (TokenId token : request.stop_tokens) {
    BATON_RETURN_IF_ERROR(InVocabulary("stop_tokens", token, limits.vocabulary));
  }
  BATON_RETURN_IF_ERROR(CheckPromptLogprobs(request, limits));
  for (TokenId token : request.labels) {
    BATON_RETURN_IF_ERROR(InVocabulary("labels", token, limits.vocabulary));
  }
  BATON_RETURN_IF_ERROR(CheckPromptResult(request, limits));
  BATON_RETURN_IF_ERROR(CheckConstrained(request));
  return CheckSampling(request.sampling, limits.vocabulary);
}

}  // namespace baton
