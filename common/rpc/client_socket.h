#pragma once

#include <openssl/ssl.h>

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "common/base/free_with.h"
#include "common/base/unique_fd.h"

namespace baton {

// The socket of a client that a port has accepted, plain or with TLS. No operation blocks. Not
// thread-safe.
class ClientSocket final {
 public:
  enum class State {
    kDone,     // `bytes` were moved
    kBlocked,  // to be repeated when the socket is ready
    kEnded,    // the client has ended its half; no bytes follow
    kFailed,   // the connection is of no use any more
  };
  struct Result {
    State state = State::kDone;
    size_t bytes = 0;
  };

  // `ssl`: the server's side of a TLS connection; null: plain.
  ClientSocket(UniqueFd socket, std::unique_ptr<SSL, FreeWith<SSL_free>> ssl);
  ClientSocket(const ClientSocket&) = delete;

  int fd() const { return socket_.get(); }
  bool is_encrypted() const { return ssl_ != nullptr; }
  // To be repeated until the state is not kBlocked, before anything is read or written. kFailed:
  // refusal() says why.
  State Handshake();
  Result Read(std::span<char> to);
  // After kBlocked the next call must begin with the same bytes.
  Result Write(std::string_view from);
  // Bytes wait that a further Read returns, although the socket may not be readable.
  bool has_buffered_bytes() const;
  // Ends this half of the connection.
  void EndWriting();

  // The last operation of TLS waits until the socket can be written to.
  bool wants_write() const { return wants_write_; }
  // The common name in the certificate of the client, which TLS has verified; empty: none.
  std::string certificate_name() const;
  // Why the handshake has failed; empty: the client has just left.
  const std::string& refusal() const { return refusal_; }

 private:
  // The result of a function of OpenSSL, which is positive when the function has succeeded.
  Result ResultOf(int result);

  const UniqueFd socket_;
  const std::function<int()> descriptor_ = [this] { return socket_.get(); };
  const std::unique_ptr<SSL, FreeWith<SSL_free>> ssl_;
  bool wants_write_ = false;
  std::string refusal_;
};

}  // namespace baton
