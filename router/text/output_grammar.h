#pragma once

#include <span>
#include <string>

#include "common/base/status.h"
#include "router/generation.h"
#include "router/text/model_text.h"

namespace baton::router {

// The grammar of the samples of `request`, as RequestOptions::grammar: of its output grammar, of
// the calls that its tool_choice demands, and of its strict tools. Empty when the output is free.
// `prompt` decides whether the output begins inside of the reasoning. Errors: InvalidArgument
// naming the member that has a fault, is too large, or cannot be enforced.
StatusOr<std::string> OutputGrammar(const GenerationRequest& request,
                                    const ModelText& text,
                                    std::span<const TokenId> prompt);

}  // namespace baton::router
