#pragma once

#include <string_view>

#include "common/base/status.h"
#include "common/base/unique_fd.h"
#include "kvtransfer/options.h"
#include "kvtransfer/tcp/tcp_address.h"

// The TCP sockets of transports. All sockets are non-blocking. Their options find dead peers within
// 15 s.
namespace baton {

struct TcpListener {
  UniqueFd socket;
  TcpAddress advertised;  // the address that peers connect to
};

// Listens on `address` ("IP:port"). The advertised host is options.advertise_host, else the host of
// `address`, else (a wildcard) an address of this machine. Errors: InvalidArgument for something
// that is not an address; Unavailable if the address cannot be listened on.
StatusOr<TcpListener> ListenTcp(std::string_view address, const TransportOptions& options);
// Starts to connect. The connection is made in the background.
StatusOr<UniqueFd> ConnectTcp(const TcpAddress& address);
// Prepares an accepted socket. Returns the peer's address. Unavailable: the peer is gone.
StatusOr<TcpAddress> TuneAccepted(const UniqueFd& socket);

// Parses an address from a descriptor. InvalidArgument for a wildcard or port 0, which peers cannot
// connect to.
StatusOr<TcpAddress> ParseAdvertised(std::string_view text);

}  // namespace baton
