#include "cli/server_flag.h"

#include <string_view>

#include <CLI/CLI.hpp>

#include "common/rpc/address.h"

namespace baton {
namespace {

// Empty when `text` is an address that gRPC can dial, else the error.
std::string WrongAddress(const std::string& text) {
  constexpr std::string_view kDnsScheme = "dns:///";
  const bool dns = text.starts_with(kDnsScheme);
  if (!dns && text.find("://") != std::string::npos) {
    return fmt::format("'{}' is a URL; a router's gRPC address is host:port", text);
  }
  const auto address = ParseHostPort(dns ? text.substr(kDnsScheme.size()) : text);
  if (!address.ok()) return std::string(Message(address.status()));
  if (address->port == 0)
    return fmt::format("address '{}' has port 0; it must be 1 to 65535", text);
  return "";
}

}  // namespace

void AddServerFlag(CLI::App& command, std::string& server) {
  command.add_option("--server", server, "host:port of a router")->check(WrongAddress, "");
}

void AddAdminFlag(CLI::App& command, std::string& admin) {
  command.add_option("--admin", admin, "host:port of a router's Admin service (admin_listen)")
      ->check(WrongAddress, "");
  // The other commands have --server, so users also try it here.
  command
      .add_option_function<std::string>(
          "--server",
          [](const std::string&) {
            throw CLI::ValidationError(
                "--server",
                "this is the flag for a router's client port, but this command uses the Admin "
                "service; pass the port that the router's line `ready` calls \"admin\", with "
                "--admin host:port");
          })
      ->group("");  // not in --help
}

}  // namespace baton
