#pragma once

#include <string>
#include <string_view>

#include "common/model/weight_names.h"

namespace baton {

// The pattern of a tensor's name in a scheme whose names differ from those of Hugging Face by their
// beginnings alone, made of the pattern there. Other schemes: the pattern itself.
std::string WithPrefixOf(NamingScheme scheme, std::string_view pattern);

}  // namespace baton
