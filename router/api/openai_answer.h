#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "router/api/api_answer.h"
#include "router/api/chat_message.h"
#include "router/api/openai_request.h"

namespace baton::router {

// Values that every part of an answer to one request repeats.
struct OpenAiHead {
  OpenAiKind kind = OpenAiKind::kChat;
  std::string id = {};
  std::string model = {};
  std::string fingerprint = {};  // of the model's weights; empty: unknown
  int64_t created = 0;           // seconds since 1970
  std::vector<std::string> stops = {};
  bool with_logprobs = false;
  bool with_prompt_logprobs = false;  // vLLM's member
  bool include_usage = false;  // each chunk has a member `usage`, which is null except in the last
  bool continuous_usage = false;  // … which is the usage so far
};

// The answer of /v1/chat/completions and /v1/completions.
class OpenAiAnswer final : public ApiAnswer {
 public:
  explicit OpenAiAnswer(OpenAiHead head) : head_(std::move(head)) {}

  std::string Body(const std::vector<ApiChoice>& choices, const GenerationEnd& end) override;
  std::string Begin(const GenerationEnd&) override { return ""; }
  std::string Delta(const ApiDelta& delta) override;
  std::string End(const std::vector<ApiChoice>& choices, const GenerationEnd& end) override;
  std::string Failure(const std::vector<ApiChoice>& choices, const Status& status) override;
  std::string Error(const Status& status) override;

 private:
  const OpenAiHead head_;
  std::vector<ChatMessageStream> messages_;  // by choice
};

// The answers of /v1/models/{id} and /v1/models. vLLM's max_model_len is the context length.
std::string OpenAiModel(const std::string& name, int64_t created, int32_t context_length);
std::string OpenAiModels(const std::vector<std::string>& names,
                         int64_t created,
                         int32_t context_length);

// An error in OpenAI's format. `param` is MemberOf(status). `code` is ReasonOf(status) or, if that
// is empty, the name of the status code.
std::string OpenAiError(const Status& status);

}  // namespace baton::router
