#pragma once

#include <string_view>

#include "common/model/weight_kind.h"

namespace baton {

// The pattern of a tensor's name in the files of most families: those of GGUF, or of Hugging Face.
// "{0}" is the layer, "{1}" the expert.
std::string_view UsualPattern(WeightKind kind, bool gguf);

}  // namespace baton
