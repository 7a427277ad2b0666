#pragma once

#include <openssl/ssl.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/base/free_with.h"
#include "common/http/http_stream.h"

namespace baton {

// An HTTP connection's stream over TLS. OpenSSL reads and writes the socket itself, and Boost.Asio
// only awaits it. boost::asio::ssl::stream copies encrypted bytes twice more in each direction and
// has 68 KB more of buffers.
class TlsStream final : public HttpStream {
 public:
  // `ssl`: a connection of the server's, without a socket.
  TlsStream(boost::asio::ip::tcp::socket socket, std::unique_ptr<SSL, FreeWith<SSL_free>> ssl);

  boost::asio::ip::tcp::socket& socket() override { return socket_; }
  bool is_encrypted() const override { return true; }
  bool is_http2() override;
  std::string certificate_name() const override;
  void AsyncHandshake(std::function<void(boost::system::error_code)> done) override;
  void AsyncRead(boost::asio::mutable_buffer to, Done done) override;
  void AsyncWrite(const std::vector<boost::asio::const_buffer>& parts, Done done) override;
  // Discards what the peer sends before its end.
  void AsyncShutdown(std::function<void(boost::system::error_code)> done) override;

 private:
  // The result of one attempt of an operation.
  struct Outcome {
    size_t bytes = 0;  // read or written
    boost::system::error_code error;
    // What to await before the next attempt; absent: the operation is complete, or has failed.
    std::optional<boost::asio::ip::tcp::socket::wait_type> wait;
  };

  // Calls a function of OpenSSL, whose result is positive when it succeeds.
  template <class Function>
  Outcome Try(const Function& function);
  // Makes attempts until the operation has ended, and calls `done` from the last one.
  template <class Attempt>
  void Continue(Attempt attempt, Done done);
  // Continues in a handler of its own, so that `done` is never called before the caller returns.
  template <class Attempt>
  void Post(Attempt attempt, Done done);
  template <class Attempt>
  void Await(boost::asio::ip::tcp::socket::wait_type what, Attempt attempt, Done done);

  Outcome TryWrite();
  // Takes at most one record's bytes from parts_; empty: none are left.
  boost::asio::const_buffer TakeRecord();
  // Reads until the peer's end.
  void Discard(std::function<void(boost::system::error_code)> done);

  boost::asio::ip::tcp::socket socket_;
  const std::function<int()> descriptor_ = [this] { return socket_.native_handle(); };
  const std::unique_ptr<SSL, FreeWith<SSL_free>> ssl_;

  // The write in progress.
  std::vector<boost::asio::const_buffer> parts_;  // the bytes that no record has taken
  size_t part_ = 0;                               // the first of parts_ that may have bytes
  boost::asio::const_buffer record_;              // the bytes that OpenSSL must be given next
  std::string gathered_;                          // the bytes of a record of several parts
  size_t written_ = 0;

  std::string discarded_;
};

}  // namespace baton
