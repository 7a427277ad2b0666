#pragma once

#include <string>

namespace CLI {
class App;
}

namespace baton {

// Adds --server, the gRPC address of a router; `server` holds its default. What cannot be an
// address is wrong usage.
void AddServerFlag(CLI::App& command, std::string& server);
// As that, of --admin: the router's Admin service.
void AddAdminFlag(CLI::App& command, std::string& admin);

}  // namespace baton
