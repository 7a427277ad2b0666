#pragma once

#include <string>
#include <utility>

#include "common/http/http_stream.h"

namespace baton {

// An HTTP connection's stream without encryption.
class PlainStream final : public HttpStream {
 public:
  explicit PlainStream(boost::asio::ip::tcp::socket socket) : socket_(std::move(socket)) {}

  boost::asio::ip::tcp::socket& socket() override { return socket_; }
  bool is_encrypted() const override { return false; }
  bool is_http2() override { return false; }
  std::string certificate_name() const override { return ""; }
  void AsyncHandshake(std::function<void(boost::system::error_code)> done) override { done({}); }
  void AsyncRead(boost::asio::mutable_buffer to, Done done) override;
  void AsyncWrite(const std::vector<boost::asio::const_buffer>& parts, Done done) override;
  // Only sends the end; does not await the peer's.
  void AsyncShutdown(std::function<void(boost::system::error_code)> done) override;

 private:
  boost::asio::ip::tcp::socket socket_;
};

}  // namespace baton
