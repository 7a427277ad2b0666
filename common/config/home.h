#pragma once

#include <string>

namespace baton {

// The folder for the user's files that Baton keeps between runs (models, logs, history):
// $BATON_HOME, else $XDG_CACHE_HOME/baton, else ~/.cache/baton. The folder may not exist yet. Only
// this function and ConfigFolder read the environment.
std::string HomeFolder();

// The folder for the user's configuration of Baton's tools: $XDG_CONFIG_HOME/baton, else
// ~/.config/baton. The folder may not exist.
std::string ConfigFolder();

}  // namespace baton
