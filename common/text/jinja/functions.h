#pragma once

#include <string>
#include <utility>
#include <vector>

#include "common/text/jinja/value.h"

namespace baton::jinja {

// The functions that every chat template can call: range, namespace, dict, raise_exception,
// strftime_now, joiner.
std::vector<std::pair<std::string, Value>> GlobalFunctions();

}  // namespace baton::jinja
