#pragma once

#include <string>

#include "cli/router_endpoint.h"

namespace baton {

// Why the certificate of the server at `endpoint` is refused, such as "certificate has expired".
// Connects once more, because gRPC does not tell. Empty when the certificate is right or no
// connection comes about. Takes up to 5 s. Only for the text of errors.
std::string WhyCertificateIsRefused(const RouterEndpoint& endpoint);

// Why the router ends connections that present the client's certificate: its alert, such as "tlsv1
// alert unknown ca", if it sends one. Empty when it does not end them.
std::string WhyClientIsRefused(const RouterEndpoint& endpoint);

// Whether the server at the endpoint's address answers a TLS handshake.
bool SpeaksTls(const RouterEndpoint& endpoint);

}  // namespace baton
