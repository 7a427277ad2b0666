#pragma once

#include <string>

namespace CLI {
class App;
}

namespace baton {

// Adds --server, the gRPC address of a router. `server` holds the default. A malformed address is
// wrong usage.
void AddServerFlag(CLI::App& command, std::string& server);
// As AddServerFlag, for --admin: the address of the router's Admin service.
void AddAdminFlag(CLI::App& command, std::string& admin);

}  // namespace baton
