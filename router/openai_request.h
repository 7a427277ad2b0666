#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "common/base/status.h"
#include "router/generation.h"

namespace baton::router {

enum class OpenAiKind : uint8_t { kChat, kCompletion };

// A request of the OpenAI HTTP API
// (https://platform.openai.com/docs/api-reference/chat/create, …/completions/create).
struct OpenAiRequest {
  OpenAiKind kind = OpenAiKind::kChat;
  GenerationRequest generation;     // applies to each prompt; its `input` is not set
  std::vector<PromptInput> inputs;  // one for a chat, at least one for a completion
  bool echo = false;                // the text of each choice begins with the prompt's text
  bool stream = false;
  bool include_usage = false;
};

// The maximum number of prompts in one completion request.
constexpr size_t kMaxPrompts = 256;

// Parses a request body. Beside OpenAI's members it reads vLLM's add_generation_prompt,
// add_special_tokens, cache_salt, chat_template_kwargs, continue_final_message, documents,
// ignore_eos, include_stop_str_in_output, min_p, min_tokens, priority, repetition_penalty,
// skip_special_tokens, stop_token_ids and top_k. Unknown members are refused, and unsupported ones
// that would change the answer (openai_members.h). Errors: InvalidArgument naming the member at
// fault.
StatusOr<OpenAiRequest> ParseOpenAiRequest(OpenAiKind kind, std::string_view body);

}  // namespace baton::router
