#pragma once

#include <openssl/bio.h>

#include <functional>

namespace baton {

// A BIO through which OpenSSL reads from and writes to a socket without blocking and without
// SIGPIPE. `descriptor` gives the socket, and outlives the BIO. The caller owns the BIO. While
// `descriptor` gives -1, because the socket has been closed, every operation fails.
BIO* MakeSocketBio(const std::function<int()>& descriptor);

}  // namespace baton
