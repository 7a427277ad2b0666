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

// Parses a request body: OpenAI's members, and vLLM's extensions that kMembers in openai_members.cc
// lists. Unknown members are refused, and unsupported ones that would change the answer. Errors:
// InvalidArgument naming the member at fault.
StatusOr<OpenAiRequest> ParseOpenAiRequest(OpenAiKind kind, std::string_view body);

}  // namespace baton::router
