#pragma once

#include <string_view>

#include <nlohmann/json_fwd.hpp>

#include "common/base/status.h"
#include "router/api/api_request.h"

namespace baton::router {

// Reads the body of OpenAI's /v1/responses
// (https://platform.openai.com/docs/api-reference/responses/create). The router keeps no state, so
// members that refer to earlier responses are refused. Errors: InvalidArgument naming the member at
// fault.
StatusOr<ApiRequest> ReadResponsesRequest(const nlohmann::ordered_json& body);

}  // namespace baton::router
