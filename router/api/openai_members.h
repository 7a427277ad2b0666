#pragma once

#include <nlohmann/json_fwd.hpp>

#include "common/base/status.h"
#include "router/api/openai_request.h"

namespace baton::router {

// Checks the names of a request's members. Each member is read, ignored because it cannot change
// the answer, or refused, so that no member of a request silently fails to have its effect. A null
// member counts as absent. An unsupported member may have the value that changes nothing (`echo:
// false`). Errors: InvalidArgument naming the member, and for an unknown member the most similar
// known name.
Status CheckMembers(OpenAiKind kind, const nlohmann::ordered_json& body);

}  // namespace baton::router
