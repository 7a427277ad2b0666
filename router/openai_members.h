#pragma once

#include <nlohmann/json.hpp>

#include "common/base/status.h"
#include "router/openai_request.h"

namespace baton::router {

// Checks the names of a request's members: each is read, harmless to ignore, or refused, so that
// no client takes an answer for one that a member of its request has changed. Members that are null
// count as absent, unsupported ones may have the value that changes nothing (`echo: false`).
// InvalidArgument names the member, and for an unknown one the nearest that is known.
Status CheckMembers(OpenAiKind kind, const nlohmann::ordered_json& body);

}  // namespace baton::router
