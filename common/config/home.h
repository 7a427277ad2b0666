#pragma once

#include <string>

namespace baton {

// The folder for the user's files that Baton keeps between runs (models, logs, history):
// $BATON_HOME, else $XDG_CACHE_HOME/baton, else ~/.cache/baton. The folder may not exist yet. This
// is the only function that reads the environment.
std::string HomeFolder();

}  // namespace baton
