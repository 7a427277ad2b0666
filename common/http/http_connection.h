#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include <boost/asio/io_context.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>

#include "common/http/http_server.h"

namespace baton {

// What the connections of a server share. Lives until the last connection and exchange are gone.
struct HttpShared {
  explicit HttpShared(const HttpServerOptions& options_in)
      : options(options_in), handlers(static_cast<size_t>(options_in.handler_threads)) {}

  HttpServer::Handler FindRoute(const std::string& method, const std::string& path);

  const HttpServerOptions options;
  boost::asio::io_context io{1};
  boost::asio::thread_pool handlers;
  std::atomic<int> connections{0};
  std::mutex mutex;
  std::map<std::pair<std::string, std::string>, HttpServer::Handler> routes;  // guarded by mutex
};

// One client's connection: reads a request, lets its exchange answer, reads the next. Everything
// but Post runs on the io thread. Kept alive by its pending operations and its exchange.
class HttpConnection final : public std::enable_shared_from_this<HttpConnection> {
 public:
  HttpConnection(std::shared_ptr<HttpShared> shared, boost::asio::ip::tcp::socket socket);
  ~HttpConnection();

  void ReadRequest();
  void Close();

  // Runs `work` on the io thread, in order; dropped once the connection is closed. Any thread.
  void Post(std::function<void()> work);

  // Sends bytes of the answer after those queued before. `last`: the answer is complete with them.
  void Send(std::string bytes, bool last, bool keep_alive);

  const HttpServerOptions& options() const { return shared_->options; }
  // Bytes queued and not taken by the system yet. Any thread.
  size_t unsent_bytes() const { return unsent_bytes_; }
  void AddUnsent(size_t bytes) { unsent_bytes_ += bytes; }

 private:
  class Exchange;
  using Parser = boost::beast::http::request_parser<boost::beast::http::string_body>;

  void OnRequest(boost::beast::error_code error);
  void Refuse(int status, const std::string& why);
  void Dispatch(HttpRequest request, bool keep_alive);
  void WatchForDisconnect(uint64_t exchange_number);
  void WriteNext();
  void OnWritten(boost::beast::error_code error);
  void ClientGone();

  std::shared_ptr<HttpShared> shared_;
  boost::beast::tcp_stream stream_;
  boost::beast::flat_buffer buffer_;
  std::optional<Parser> parser_;
  std::weak_ptr<Exchange> exchange_;
  uint64_t exchange_number_ = 0;
  std::deque<std::string> output_;
  bool writing_ = false;
  bool answer_complete_ = false;
  bool keep_alive_ = false;
  std::atomic<size_t> unsent_bytes_{0};
  std::mutex mutex_;
  bool closed_ = false;  // guarded by mutex_
};

}  // namespace baton
