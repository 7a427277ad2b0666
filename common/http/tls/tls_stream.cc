#include "common/http/tls/tls_stream.h"

#include <utility>

#include <boost/asio/write.hpp>

namespace baton {

namespace asio = boost::asio;

TlsStream::TlsStream(asio::ip::tcp::socket socket, std::shared_ptr<asio::ssl::context> context)
    : context_(std::move(context)), stream_(std::move(socket), *context_) {}

void TlsStream::AsyncHandshake(std::function<void(boost::system::error_code)> done) {
  stream_.async_handshake(asio::ssl::stream_base::server, std::move(done));
}

void TlsStream::AsyncRead(asio::mutable_buffer to, Done done) {
  stream_.async_read_some(to, std::move(done));
}

void TlsStream::AsyncWrite(const std::vector<asio::const_buffer>& parts, Done done) {
  asio::async_write(stream_, parts, std::move(done));
}

void TlsStream::AsyncShutdown(std::function<void(boost::system::error_code)> done) {
  stream_.async_shutdown(std::move(done));
}

}  // namespace baton
