#pragma once

#include <string>

namespace CLI {
class App;
}

namespace baton {

// The manual page of `app` in roff: its flags, and its commands with theirs. Hidden flags are left
// out.
std::string ManPage(const CLI::App& app);

// A script for bash that completes the commands and flags of `app`, and otherwise names of files.
std::string BashCompletion(const CLI::App& app);

// Adds --man-page and --bash-completion, which print these two. Call it on the program itself;
// commands and flags that are added later are included. `app` outlives the parsing.
void AddDocumentFlags(CLI::App& app);

}  // namespace baton
