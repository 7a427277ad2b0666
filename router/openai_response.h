#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "router/generation.h"
#include "router/openai_request.h"

namespace baton::router {

// Values that every part of an answer to one request repeats.
struct OpenAiAnswer {
  OpenAiKind kind = OpenAiKind::kChat;
  std::string id;
  std::string model;
  int64_t created = 0;         // seconds since 1970
  bool include_usage = false;  // each chunk has a member `usage`, which is null except in the last
};

// The whole output of one sample of one prompt.
struct OpenAiChoice {
  std::string text;
  std::vector<TokenLogprobs> logprobs;
  FinishReason finish = FinishReason::kNone;
};

// The body of an answer that is not streamed.
std::string OpenAiBody(const OpenAiAnswer& answer,
                       const std::vector<OpenAiChoice>& choices,
                       bool with_logprobs,
                       const GenerationEnd& end);

// Events of a stream, including "data: " and the blank line. `delta.sample` is the number of the
// choice; `first`: this is the first chunk of the choice.
std::string OpenAiChunk(const OpenAiAnswer& answer, const GenerationDelta& delta, bool first);
std::string OpenAiUsageChunk(const OpenAiAnswer& answer, const GenerationEnd& end);
std::string OpenAiErrorChunk(const Status& status);
inline const char* OpenAiDone() {
  return "data: [DONE]\n\n";
}

// The answers of /v1/models/{id} and /v1/models. vLLM's max_model_len is the context length.
std::string OpenAiModel(const std::string& name, int64_t created, int32_t context_length);
std::string OpenAiModels(const std::string& name, int64_t created, int32_t context_length);

// An error in OpenAI's format, and its HTTP status. `param` is MemberOf(status). `code` is
// ReasonOf(status) or, if that is empty, the name of the status code.
std::string OpenAiError(const Status& status);
int HttpStatusOf(const Status& status);

}  // namespace baton::router
