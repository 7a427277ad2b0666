#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <boost/asio/buffer.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/system/error_code.hpp>

namespace baton {

// The bytes of one accepted connection, plain or encrypted. Used on the io thread; `done` is called
// there, too. At most one read and one write may be in progress. The owner keeps the stream until
// every `done` has been called.
class HttpStream {
 public:
  using Done = std::function<void(boost::system::error_code, size_t)>;

  virtual ~HttpStream() = default;
  virtual boost::asio::ip::tcp::socket& socket() = 0;
  virtual bool is_encrypted() const = 0;
  // Whether the handshake has selected HTTP/2 (ALPN).
  virtual bool is_http2() = 0;
  // The common name in the peer's certificate, which the handshake has verified; empty: none.
  virtual std::string certificate_name() const = 0;

  // To be called once, before any other operation.
  virtual void AsyncHandshake(std::function<void(boost::system::error_code)> done) = 0;
  // Reads at least one byte.
  virtual void AsyncRead(boost::asio::mutable_buffer to, Done done) = 0;
  // Writes all of `parts`, whose memory must stay valid.
  virtual void AsyncWrite(const std::vector<boost::asio::const_buffer>& parts, Done done) = 0;
  // Tells the peer that nothing more will be sent, and awaits the same of the peer.
  virtual void AsyncShutdown(std::function<void(boost::system::error_code)> done) = 0;
};

// Makes the streams of a server's connections. Thread-safe.
class HttpStreams {
 public:
  virtual ~HttpStreams() = default;
  virtual std::unique_ptr<HttpStream> MakeStream(boost::asio::ip::tcp::socket socket) = 0;
};

}  // namespace baton
