#include "cli/router_endpoint.h"

#include <iostream>

#include <CLI/CLI.hpp>

#include "common/base/host_port.h"
#include "common/base/mapped_file.h"
#include "common/config/home.h"
#include "common/rpc/rpc_tls.h"
#include "common/security/loopback.h"

namespace baton {
namespace {

constexpr size_t kMaxKeyFileBytes = 4096;

StatusOr<std::string> ReadKey(const std::string& path) {
  std::string key;
  if (path == "-") {
    std::getline(std::cin, key);
  } else {
    BATON_ASSIGN_OR_RETURN(key, ReadFile(path, kMaxKeyFileBytes));
  }
  while (!key.empty() && (key.back() == '\n' || key.back() == '\r' || key.back() == ' ')) {
    key.pop_back();
  }
  for (const char c : key) {
    if (c > ' ' && c < 0x7f) continue;
    return InvalidArgument("{} is not a file with one API key", path);
  }
  if (key.empty()) return InvalidArgument("{} is empty; it must have one API key", path);
  return key;
}

bool StaysHere(const std::string& address) {
  const auto parsed = ParseHostPort(address);
  return parsed.ok() && IsLoopback(parsed->host);
}

}  // namespace

void AddEndpointFlags(CLI::App& command, EndpointFlags& flags) {
  command.add_flag("--tls", flags.tls, "encrypt, and check the router's certificate");
  command
      .add_option("--ca",
                  flags.ca_file,
                  "PEM file of the authority of the router's certificate; implies --tls. Default: "
                  "the system's authorities")
      ->type_name("FILE");
  command
      .add_option("--key-file",
                  flags.key_file,
                  "file with the API key; - reads the key from stdin. Default: key (for status, "
                  "drain and verify: admin_key) in "
                  "~/.config/baton, if it exists and the connection is encrypted or local")
      ->type_name("FILE");
  auto* const key = command
                        .add_option("--certificate-key",
                                    flags.certificate_key_file,
                                    "PEM file with the private key of --certificate")
                        ->type_name("FILE");
  auto* const certificate =
      command
          .add_option("--certificate",
                      flags.certificate_file,
                      "PEM file with a client's certificate, for routers with "
                      "security.tls.client_ca_file; implies --tls")
          ->type_name("FILE")
          ->needs(key);
  key->needs(certificate);
}

StatusOr<RouterEndpoint> EndpointOf(const std::string& address,
                                    const EndpointFlags& flags,
                                    const std::string& default_key) {
  RouterEndpoint endpoint(address);
  endpoint.tls = flags.tls || !flags.ca_file.empty() || !flags.certificate_file.empty();
  endpoint.certificate_file = flags.certificate_file;
  endpoint.certificate_key_file = flags.certificate_key_file;
  endpoint.ca_file = flags.ca_file;
  if (!endpoint.ca_file.empty()) {
    BATON_RETURN_IF_ERROR(ReadFile(endpoint.ca_file, size_t{1} << 20).status());
  }
  if (!endpoint.certificate_file.empty()) {
    BATON_RETURN_IF_ERROR(
        CheckTls({endpoint.certificate_file, endpoint.certificate_key_file, "", ""}));
  }
  if (!flags.key_file.empty()) {
    BATON_ASSIGN_OR_RETURN(endpoint.key, ReadKey(flags.key_file));
    return endpoint;
  }
  if (!endpoint.tls && !StaysHere(address)) return endpoint;
  const StatusOr<std::string> key = ReadKey(ConfigFolder() + "/" + default_key);
  if (key.status().code() == StatusCode::kNotFound) return endpoint;
  if (!key.ok()) return key.status();
  endpoint.key = *key;
  return endpoint;
}

}  // namespace baton
