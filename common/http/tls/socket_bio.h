#pragma once

#include <openssl/bio.h>

#include <boost/asio/ip/tcp.hpp>

namespace baton {

// A BIO through which OpenSSL reads from and writes to `socket` without blocking and without
// SIGPIPE. The socket outlives the BIO. The caller owns the BIO. When the socket has been closed,
// every operation fails.
BIO* MakeSocketBio(boost::asio::ip::tcp::socket& socket);

}  // namespace baton
