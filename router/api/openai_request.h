#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "common/base/status.h"
#include "router/api/api_request.h"

namespace baton::router {

enum class OpenAiKind : uint8_t { kChat, kCompletion };

// The maximum number of prompts in one completion request.
constexpr size_t kMaxPrompts = 256;

// Parses the body of /v1/chat/completions or /v1/completions
// (https://platform.openai.com/docs/api-reference/chat/create, …/completions/create): OpenAI's
// members, and vLLM's extensions that kMembers in openai_members.cc lists. Unknown members are
// refused, and unsupported ones that would change the answer. Errors: InvalidArgument naming the
// member at fault.
StatusOr<ApiRequest> ParseOpenAiRequest(OpenAiKind kind, std::string_view body);
// The same for a body that ParseBody has parsed.
StatusOr<ApiRequest> ReadOpenAiRequest(OpenAiKind kind, const nlohmann::ordered_json& body);

}  // namespace baton::router
