#pragma once

#include <string>

#include <nlohmann/json_fwd.hpp>

#include "common/base/status.h"
#include "router/generation.h"

// Reads what an output must match. Errors: InvalidArgument naming the member at fault.
namespace baton::router {

// OpenAI's `response_format`, and vLLM's `structured_outputs` and `guided_json`, `guided_regex`,
// `guided_choice` and `guided_grammar`. At most one of them may be given.
Status ReadOutputGrammar(const nlohmann::ordered_json& body, GrammarInput& out);

// The Responses API's `text.format`, called `name`: as response_format, without the object
// `json_schema` around the schema.
Status ReadTextFormat(const std::string& name,
                      const nlohmann::ordered_json& format,
                      GrammarInput& out);

// Anthropic's `output_config.format`, and its older name `output_format`.
Status ReadMessagesFormat(const nlohmann::ordered_json& body, GrammarInput& out);

}  // namespace baton::router
