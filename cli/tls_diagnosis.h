#pragma once

#include <string>

#include "cli/router_endpoint.h"

namespace baton {

// Why the certificate of the server at `endpoint` is refused, such as "certificate has expired".
// Connects once more, because gRPC does not tell. Empty when the certificate is right or no
// connection comes about. Takes up to 5 s. Only for the text of errors.
std::string WhyCertificateIsRefused(const RouterEndpoint& endpoint);

}  // namespace baton
