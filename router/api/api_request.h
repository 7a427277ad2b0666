#pragma once

#include <vector>

#include "router/api/output_blocks.h"
#include "router/generation.h"

namespace baton::router {

// A request of any of the HTTP APIs. Each API converts its own form to this one.
struct ApiRequest {
  GenerationRequest generation;     // applies to each prompt; its `input` is not set
  std::vector<PromptInput> inputs;  // one for a chat, at least one for a completion
  bool echo = false;                // the text of each choice begins with the prompt's text
  bool prompt_only = false;         // with echo: the choices have no output
  bool prompt_logprobs = false;     // the answer has a member for those of the prompt
  bool stream = false;
  bool include_usage = false;     // a stream ends with the usage
  bool continuous_usage = false;  // each chunk of a stream has the usage so far
  bool include_reasoning = true;  // the answer has the text of the reasoning
  OutputBlocks::Options blocks;   // of a chat
};

}  // namespace baton::router
