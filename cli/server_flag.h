#pragma once

#include <string>

namespace CLI {
class App;
}

namespace baton {

// Adds --server, the gRPC address of a router; `server` holds its default. What cannot be an
// address is wrong usage.
void AddServerFlag(CLI::App& command, std::string& server);

}  // namespace baton
