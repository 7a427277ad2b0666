#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "router/generation.h"
#include "router/openai_request.h"

namespace baton::router {

// What all answers to one request say of it.
struct OpenAiAnswer {
  OpenAiKind kind = OpenAiKind::kChat;
  std::string id;
  std::string model;
  int64_t created = 0;         // seconds since 1970
  bool include_usage = false;  // chunks have a member `usage`: null, until the last
};

// The whole output of one sample of one prompt.
struct OpenAiChoice {
  std::string text;
  std::vector<TokenLogprobs> logprobs;
  FinishReason finish = FinishReason::kNone;
};

// The answer of a request that does not stream.
std::string OpenAiBody(const OpenAiAnswer& answer,
                       const std::vector<OpenAiChoice>& choices,
                       bool with_logprobs,
                       const GenerationEnd& end);

// Events of a stream, complete with "data: " and the blank line. `first`: of this choice, whose
// number is delta.sample.
std::string OpenAiChunk(const OpenAiAnswer& answer, const GenerationDelta& delta, bool first);
std::string OpenAiUsageChunk(const OpenAiAnswer& answer, const GenerationEnd& end);
std::string OpenAiErrorChunk(const Status& status);
inline const char* OpenAiDone() {
  return "data: [DONE]\n\n";
}

// What /v1/models says of a model. vLLM's max_model_len is the context length.
std::string OpenAiModel(const std::string& name, int64_t created, int32_t context_length);
std::string OpenAiModels(const std::string& name, int64_t created, int32_t context_length);

// An error as OpenAI shapes it, and its HTTP status. `param` is MemberOf(status), `code` is
// ReasonOf(status), else the name of the status code.
std::string OpenAiError(const Status& status);
int HttpStatusOf(const Status& status);

}  // namespace baton::router
