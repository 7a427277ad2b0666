#pragma once

#include <string>
#include <utility>

#include "common/base/status.h"

namespace CLI {
class App;
}

namespace baton {

// A router's port, and how a client of it encrypts and proves who it is.
struct RouterEndpoint {
  // An address alone is the common case.
  RouterEndpoint(std::string address_in)  // NOLINT(google-explicit-constructor)
      : address(std::move(address_in)) {}
  RouterEndpoint(const char* address_in)  // NOLINT(google-explicit-constructor)
      : address(address_in) {}

  std::string address;
  bool tls = false;
  std::string ca_file;  // with tls: the authority of the router's certificate; empty: the system's
  std::string key;      // an API key; empty: none
  std::string certificate_file;  // the client's own certificate; empty: none
  std::string certificate_key_file;
};

// The flags --tls, --ca, --key-file, --certificate and --certificate-key.
struct EndpointFlags {
  bool tls = false;
  std::string ca_file;
  std::string key_file;
  std::string certificate_file;
  std::string certificate_key_file;
};
void AddEndpointFlags(CLI::App& command, EndpointFlags& flags);

// The endpoint at `address`. Without --key-file, the key comes from the file `default_key` in the
// user's configuration folder (~/.config/baton), if it exists; it is then not sent unencrypted to
// another machine. Errors: those of reading the files.
StatusOr<RouterEndpoint> EndpointOf(const std::string& address,
                                    const EndpointFlags& flags,
                                    const std::string& default_key);

inline constexpr const char* kClientKeyFile = "key";
inline constexpr const char* kOperatorKeyFile = "admin_key";

}  // namespace baton
