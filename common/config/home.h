#pragma once

#include <string>

namespace baton {

// The user's folder for what Baton keeps between runs (models, logs, history): $BATON_HOME, else
// $XDG_CACHE_HOME/baton, else ~/.cache/baton. It may not exist yet. The only place that reads the
// environment.
std::string HomeFolder();

}  // namespace baton
