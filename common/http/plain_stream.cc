#include "common/http/plain_stream.h"

#include <boost/asio/write.hpp>

namespace baton {

namespace asio = boost::asio;

void PlainStream::AsyncRead(asio::mutable_buffer to, Done done) {
  socket_.async_read_some(to, std::move(done));
}

void PlainStream::AsyncWrite(const std::vector<asio::const_buffer>& parts, Done done) {
  asio::async_write(socket_, parts, std::move(done));
}

void PlainStream::AsyncShutdown(std::function<void(boost::system::error_code)> done) {
  boost::system::error_code error;
  socket_.shutdown(asio::ip::tcp::socket::shutdown_send, error);
  done(error);
}

}  // namespace baton
