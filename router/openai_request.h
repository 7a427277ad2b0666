#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "common/base/status.h"
#include "router/generation.h"

namespace baton::router {

enum class OpenAiKind : uint8_t { kChat, kCompletion };

// A request of the OpenAI HTTP API
// (https://platform.openai.com/docs/api-reference/chat/create, …/completions/create).
struct OpenAiRequest {
  OpenAiKind kind = OpenAiKind::kChat;
  GenerationRequest generation;
  bool stream = false;
  bool include_usage = false;
};

// Parses a request body. Members that are unknown are ignored, as OpenAI clients expect; the
// extensions top_k, min_p, repetition_penalty, min_tokens, ignore_eos, stop_token_ids, priority,
// cache_salt and chat_template_kwargs are read, too. InvalidArgument naming the member at fault.
StatusOr<OpenAiRequest> ParseOpenAiRequest(OpenAiKind kind, std::string_view body);

}  // namespace baton::router
