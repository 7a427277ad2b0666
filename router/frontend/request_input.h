#pragma once

#include <cstddef>
#include <string_view>

#include "router/generation.h"

namespace baton::router {

// The API's name of the member that has the request's input.
std::string_view InputMember(const GenerationRequest& request);

// The size of the input to template and tokenise.
size_t InputBytes(const GenerationRequest& request);

// Nothing in the request, whose input has `bytes`, can take long to prepare: a template or a
// grammar may, and a text that takes longer to tokenise than it takes to wake a thread for it.
bool IsShort(const GenerationRequest& request, size_t bytes);

}  // namespace baton::router
