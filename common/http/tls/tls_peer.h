#pragma once

#include <openssl/ssl.h>

#include <string>
#include <string_view>

namespace baton {

// The protocol that the two ends of a TLS connection have chosen by ALPN, such as "h2"; empty:
// none. Valid as long as the connection.
std::string_view TlsProtocol(const SSL* ssl);

// The common name in the peer's certificate, which has been verified, in UTF-8; empty: there is
// none.
std::string TlsCertificateName(const SSL* ssl);

}  // namespace baton
