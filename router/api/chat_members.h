#pragma once

#include <span>
#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

#include "common/base/status.h"
#include "router/generation.h"

// Members that several APIs have. Errors: as in json_members.h.
namespace baton::router {

// The text of a message: a string, or an array of parts of the types "text", "input_text" or
// "output_text".
StatusOr<std::string> ReadContent(const nlohmann::ordered_json& content, const std::string& name);

// The names of the members that ReadSampling and ReadPassed read, which every API has. A line in
// kSamplingFields or kPassedFields adds its member to all of them.
std::span<const std::string_view> SharedMembers();

// The sampling parameters with OpenAI's and vLLM's names. As their clients mean it, `top_k: -1` is
// no limit, and `seed: -1` is no seed.
Status ReadSampling(const nlohmann::ordered_json& body, SamplingInput& out);

// The stated fields of kPassedFields, and `timeout_ms`.
Status ReadPassed(const nlohmann::ordered_json& body, GenerationRequest& out);

}  // namespace baton::router
