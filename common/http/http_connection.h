#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>

#include "common/http/http_head.h"
#include "common/http/http_limits.h"
#include "common/http/http_probe.h"
#include "common/http/http_routes.h"
#include "common/http/http_server.h"

namespace baton {

class ConnectionExchange;
class HttpConnection;

// What the connections of a server share. Lives until the last connection and exchange are gone.
struct HttpShared {
  explicit HttpShared(const HttpServerOptions& options_in);

  const HttpServerOptions options;
  MetricsRegistry own_metrics;  // when the options name none
  HttpProbe probe;
  ConnectionSlots slots;
  ByteBudget waiting_bodies;
  HttpRoutes routes;
  boost::asio::io_context io{1};
  boost::asio::thread_pool handlers;
  boost::asio::thread_pool probe_handlers{1};
  std::mutex mutex;
  std::unordered_map<HttpConnection*, std::weak_ptr<HttpConnection>> open;  // guarded by mutex
};

// One client's connection: reads a request, lets its exchange answer, reads the next. Everything
// but Post runs on the io thread. Kept alive by its pending operations and its exchange.
class HttpConnection final : public std::enable_shared_from_this<HttpConnection> {
 public:
  HttpConnection(std::shared_ptr<HttpShared> shared,
                 boost::asio::ip::tcp::socket socket,
                 ConnectionSlots::Slot slot);
  ~HttpConnection();

  // Reads the first request.
  void Start();
  void Close();
  // Nothing of a request is being served: closed for another one, it loses nothing.
  bool is_dispensable() const { return phase_ == Phase::kHead || phase_ == Phase::kLinger; }

  boost::asio::ip::tcp::socket& socket() { return socket_; }
  const std::string& over_limit() const { return slot_.over_limit(); }

  // Runs `work` on the io thread, in order; dropped once the connection is closed. Any thread.
  void Post(std::function<void()> work);

  // Sends bytes of the answer after those queued before. `last`: the answer is complete with them.
  void Send(std::string bytes, bool last, bool keep_alive);

  const HttpServerOptions& options() const { return shared_->options; }
  // Bytes queued and not taken by the system yet. Any thread.
  size_t unsent_bytes() const { return unsent_bytes_; }
  void AddUnsent(size_t bytes) { unsent_bytes_ += bytes; }

 private:
  enum class Phase { kHead, kBody, kAnswer, kLinger, kClosed };
  using Parser = boost::beast::http::request_parser<boost::beast::http::string_body>;

  void NextRequest(Duration limit);
  void Read();
  void OnRead(boost::beast::error_code error, size_t bytes);
  void Parse();
  // The header is complete. False when that decided the answer, and no body is to be read.
  bool OnHead();
  // The route's handler, or an answer without one: then false.
  bool FindRoute();
  // False when the bytes so far are over a limit, and that was answered.
  bool CheckSizes(bool need_more);
  bool keeps_alive() const;
  void OnParseError(boost::beast::error_code error);
  void Dispatch();
  std::shared_ptr<ConnectionExchange> MakeExchange(bool keep_alive);
  // Answers by itself. The rest of the request, if any is missing, is not read: the connection
  // ends.
  void Refuse(int status, const std::string& why);
  void Continue();
  void WatchForDisconnect(uint64_t exchange_number);
  void WriteNext();
  void OnWritten(boost::beast::error_code error);
  // Lets the client read the answer before the connection closes: a reset would throw it away.
  void Linger();
  void Discard();
  void Arm(Duration limit);
  void OnTimeout();
  void ClientGone();

  std::shared_ptr<HttpShared> shared_;
  ConnectionSlots::Slot slot_;
  boost::asio::ip::tcp::socket socket_;
  boost::asio::steady_timer timer_;  // of the phase
  Phase phase_ = Phase::kHead;
  bool timed_out_ = false;

  boost::beast::flat_buffer buffer_;
  std::optional<Parser> parser_;
  size_t parsed_bytes_ = 0;  // of the header, then of the body with its framing
  HttpRequest request_;
  HttpRoutes::Route route_;
  ByteBudget::Share body_share_;

  std::weak_ptr<ConnectionExchange> exchange_;
  uint64_t exchange_number_ = 0;
  std::deque<std::string> output_;
  size_t writing_ = 0;  // the first so many of output_ are being written
  bool answer_complete_ = false;
  bool keep_alive_ = false;
  std::atomic<size_t> unsent_bytes_{0};
  std::mutex mutex_;
  bool closed_ = false;  // guarded by mutex_
};

}  // namespace baton
