#include "cli/reachability.h"

#include <algorithm>
#include <initializer_list>

#include "cli/tls_diagnosis.h"

namespace baton {
namespace {

bool Mentions(const Status& status, std::initializer_list<std::string_view> words) {
  return std::ranges::any_of(words, [&](std::string_view word) {
    return Message(status).find(word) != std::string_view::npos;
  });
}

}  // namespace

Status ExplainUnreachable(const Status& status,
                          const RouterEndpoint& endpoint,
                          const RouterPort& port) {
  const std::string& address = endpoint.address;
  // What gRPC says of answers in HTTP/1, and of answers in HTTP/2 that are none of gRPC.
  if (Mentions(status, {"http1.x", "http2 header with status"})) {
    return MakeStatus(StatusCode::kUnavailable,
                      "{} is an HTTP port, not a gRPC port of a router; pass the port that the "
                      "router's line `ready` calls \"{}\", with {} host:port",
                      address,
                      port.name,
                      port.flag);
  }
  // gRPC's status for a service that the server does not have. Our own errors have a message.
  if (status.code() == StatusCode::kUnimplemented) {
    return MakeStatus(
        StatusCode::kUnavailable,
        "{} is a gRPC port, but not the router's port for this service; it may be another one of "
        "its ports, or a worker's; pass the port that the router's line `ready` calls \"{}\", with "
        "{} host:port",
        address,
        port.name,
        port.flag);
  }
  if (status.code() == StatusCode::kUnauthenticated) {
    return MakeStatus(StatusCode::kUnauthenticated,
                      "{}: {}; pass a file with a key as --key-file",
                      address,
                      Message(status));
  }
  const bool handshake = Mentions(status, {"handshake failed", "Verification Check failed"});
  if (const std::string why = handshake ? WhyCertificateIsRefused(endpoint) : ""; !why.empty()) {
    return MakeStatus(StatusCode::kUnavailable,
                      "the certificate of the server at {} is refused: {}; pass the address that "
                      "the certificate names, and a file with the authority that signed it as --ca",
                      address,
                      why);
  }
  const bool closed = Mentions(status, {"Socket closed", "Endpoint read failed"});
  if (closed && !endpoint.tls && SpeaksTls(endpoint)) {
    return MakeStatus(
        StatusCode::kUnavailable,
        "the port {} is encrypted; pass --tls, or --ca with the file of the authority "
        "that signed its certificate",
        address);
  }
  if (const std::string why = closed ? WhyClientIsRefused(endpoint) : ""; !why.empty()) {
    return MakeStatus(StatusCode::kUnavailable,
                      "the router at {} refuses the certificate '{}': {}; it must be signed by the "
                      "authority in the router's security.tls.client_ca_file",
                      address,
                      endpoint.certificate_file,
                      why);
  }
  if (Mentions(status,
               {"failed to connect",
                "Connection refused",
                "DNS resolution failed",
                "Deadline Exceeded",
                "connections to all backends failing",
                "empty address list"})) {
    return MakeStatus(StatusCode::kUnavailable,
                      "no router answers at {} ({}); start a cluster with `baton up`, or pass the "
                      "port that a router's line `ready` calls \"{}\", with {} host:port",
                      address,
                      Message(status),
                      port.name,
                      port.flag);
  }
  return status;
}

}  // namespace baton
