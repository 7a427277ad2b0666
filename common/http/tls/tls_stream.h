#pragma once

#include <memory>

#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/stream.hpp>

#include "common/http/http_stream.h"

namespace baton {

// An HTTP connection's stream over TLS.
class TlsStream final : public HttpStream {
 public:
  TlsStream(boost::asio::ip::tcp::socket socket,
            std::shared_ptr<boost::asio::ssl::context> context);

  boost::asio::ip::tcp::socket& socket() override { return stream_.next_layer(); }
  bool is_encrypted() const override { return true; }
  bool is_http2() override;
  void AsyncHandshake(std::function<void(boost::system::error_code)> done) override;
  void AsyncRead(boost::asio::mutable_buffer to, Done done) override;
  void AsyncWrite(const std::vector<boost::asio::const_buffer>& parts, Done done) override;
  void AsyncShutdown(std::function<void(boost::system::error_code)> done) override;

 private:
  const std::shared_ptr<boost::asio::ssl::context> context_;  // stays valid after a reload
  boost::asio::ssl::stream<boost::asio::ip::tcp::socket> stream_;
};

}  // namespace baton
