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
#include "common/http/http_stream.h"

namespace baton {

class ConnectionExchange;
class HttpConnection;

// State that the connections of a server share. Lives as long as any connection or exchange.
struct HttpShared {
  explicit HttpShared(const HttpServerOptions& options_in);

  const HttpServerOptions options;
  MetricsRegistry own_metrics;  // used when the options have no registry
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

// The connection of one client. Reads a request, lets its exchange answer it, and reads the next
// one. All methods run on the io thread unless their comment says otherwise. Pending operations and
// the exchange keep the connection alive.
class HttpConnection final : public std::enable_shared_from_this<HttpConnection> {
 public:
  HttpConnection(std::shared_ptr<HttpShared> shared,
                 std::unique_ptr<HttpStream> stream,
                 ConnectionSlots::Slot slot);
  ~HttpConnection();

  // Does the stream's handshake, and reads the first request.
  void Start();
  void Close();
  // True while no request is being served, so that the connection can be closed for another one
  // without loss.
  bool is_dispensable() const { return phase_ <= Phase::kHead || phase_ == Phase::kLinger; }

  HttpStream& stream() { return *stream_; }
  const std::string& over_limit() const { return slot_.over_limit(); }

  // Runs `work` on the io thread, in the order of the calls; drops it when the connection is
  // closed. Any thread.
  void Post(std::function<void()> work);

  // Sends bytes of the answer after the bytes that are queued. `last`: these bytes end the answer.
  void Send(std::string bytes, bool last, bool keep_alive);

  const HttpServerOptions& options() const { return shared_->options; }
  // Bytes that are queued and not yet accepted by the system. Any thread may call these two.
  size_t unsent_bytes() const { return unsent_bytes_; }
  void AddUnsent(size_t bytes) { unsent_bytes_ += bytes; }

 private:
  enum class Phase { kHandshake, kHead, kBody, kAnswer, kLinger, kClosed };
  using Parser = boost::beast::http::request_parser<boost::beast::http::string_body>;

  void OnHandshake(boost::beast::error_code error);
  void NextRequest(Duration limit);
  // Reads more bytes, unless a read is in progress.
  void Read();
  void OnRead(boost::beast::error_code error, size_t bytes);
  bool HasBytesToParse() const;
  void Parse();
  // Handles a complete header. False when it has already been answered; then no body is read.
  bool OnHead();
  // Asks the server's gate. False when the request has been refused.
  bool PassGate();
  // Sets route_. False when there is no handler to call and the request has been answered.
  bool FindRoute();
  // False when the bytes so far exceed a limit and the request has been refused.
  bool CheckSizes(bool need_more);
  bool keeps_alive() const;
  void OnParseError(boost::beast::error_code error);
  void Dispatch();
  std::shared_ptr<ConnectionExchange> MakeExchange(bool keep_alive);
  // Answers with an error of the server itself. Does not read the rest of the request and closes
  // the connection after the answer.
  void Refuse(int status, const std::string& why, const std::string& challenge = {});
  void Continue();
  // Notices when the client disconnects during its exchange. An encrypted stream must read for
  // that: it may receive a part of the next request.
  void WatchForDisconnect(uint64_t exchange_number);
  void OnReadDuringAnswer(boost::beast::error_code error);
  void WriteNext();
  void OnWritten(boost::beast::error_code error);
  // Delays the close until the client has had time to read the answer, because a TCP reset would
  // discard it.
  void Linger();
  void Discard();
  void Arm(Duration limit);
  void OnTimeout();
  void OnClientDisconnect();

  std::shared_ptr<HttpShared> shared_;
  ConnectionSlots::Slot slot_;
  const std::unique_ptr<HttpStream> stream_;
  boost::asio::steady_timer timer_;  // bounds the current phase
  Phase phase_ = Phase::kHandshake;
  bool reading_ = false;  // a read is in progress
  bool timed_out_ = false;

  boost::beast::flat_buffer buffer_;
  std::optional<Parser> parser_;
  size_t parsed_bytes_ = 0;  // bytes of the header, then of the body with its framing
  size_t max_body_bytes_ = 0;
  HttpRequest request_;
  HttpRoutes::Route route_;
  ByteBudget::Share body_share_;

  std::weak_ptr<ConnectionExchange> exchange_;
  uint64_t exchange_number_ = 0;
  std::deque<std::string> output_;
  size_t writing_ = 0;  // number of elements of output_, from the first, that are being written
  bool answer_complete_ = false;
  bool keep_alive_ = false;
  std::atomic<size_t> unsent_bytes_{0};
  std::mutex mutex_;
  bool closed_ = false;  // guarded by mutex_
};

}  // namespace baton
