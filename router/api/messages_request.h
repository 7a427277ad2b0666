#pragma once

#include <cstdint>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

#include "common/base/status.h"
#include "router/api/api_request.h"

namespace baton::router {

enum class MessagesKind : uint8_t { kCreate, kCountTokens };

// Reads the body of Anthropic's /v1/messages or /v1/messages/count_tokens
// (https://docs.anthropic.com/en/api/messages). Errors: InvalidArgument naming the member at fault.
StatusOr<ApiRequest> ReadMessagesRequest(MessagesKind kind, const nlohmann::ordered_json& body);

}  // namespace baton::router
