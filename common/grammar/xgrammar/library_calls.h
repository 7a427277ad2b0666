#pragma once

#include <functional>
#include <string>

#include "common/base/status.h"

namespace baton {

// Runs `body`, which calls XGrammar. InvalidArgument when XGrammar throws, and when it warns:
// XGrammar warns of what it does not enforce.
Status CallXGrammar(const std::function<void()>& body);

}  // namespace baton
