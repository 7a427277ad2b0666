#pragma once

#include <string>

#include <nlohmann/json_fwd.hpp>

#include "common/base/status.h"
#include "router/generation.h"

// Members that several APIs have. Errors: as in json_members.h.
namespace baton::router {

// The text of a message: a string, or an array of parts of the types "text", "input_text" or
// "output_text".
StatusOr<std::string> ReadContent(const nlohmann::ordered_json& content, const std::string& name);

// The sampling parameters with OpenAI's and vLLM's names.
Status ReadSampling(const nlohmann::ordered_json& body, SamplingInput& out);

// `priority`, `cache_salt` and `timeout_ms`.
Status ReadPassed(const nlohmann::ordered_json& body, GenerationRequest& out);

}  // namespace baton::router
