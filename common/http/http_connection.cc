#include "common/http/http_connection.h"

#include <sys/socket.h>

#include <utility>

#include <absl/strings/ascii.h>
#include <boost/asio/post.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/status.hpp>

namespace baton {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;

constexpr uint32_t kMaxHeaderBytes = 64 << 10;

// Header values may repeat outside bytes: nothing in them may end the line.
std::string OneLine(std::string value) {
  for (char& c : value) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = ' ';
  }
  return value;
}

std::string Text(beast::string_view view) {
  return {view.data(), view.size()};
}

HttpRequest ToRequest(http::request<http::string_body>&& message) {
  HttpRequest request;
  request.method = Text(message.method_string());
  const std::string target = Text(message.target());
  const size_t mark = target.find('?');
  request.path = target.substr(0, mark);
  if (mark != std::string::npos) request.query = target.substr(mark + 1);
  for (const auto& field : message) {
    request.headers[absl::AsciiStrToLower(Text(field.name_string()))] = Text(field.value());
  }
  request.body = std::move(message.body());
  return request;
}

}  // namespace

HttpServer::Handler HttpShared::FindRoute(const std::string& method, const std::string& path) {
  std::lock_guard lock(mutex);
  const auto found = routes.find({method, path});
  return found == routes.end() ? nullptr : found->second;
}

// The answer to one request. Thread-safe: its mutex keeps the order of what is posted.
class HttpConnection::Exchange final : public HttpExchange {
 public:
  Exchange(std::shared_ptr<HttpConnection> connection, HttpRequest request, bool keep_alive)
      : connection_(std::move(connection)), request_(std::move(request)), keep_alive_(keep_alive) {}

  ~Exchange() override {
    if (state_ == State::kNew) Reply(500, "text/plain", "the handler gave no answer\n");
    if (state_ == State::kStreaming) Cut();
  }

  const HttpRequest& request() const override { return request_; }

  void AddHeader(std::string name, std::string value) override {
    std::lock_guard lock(mutex_);
    headers_ += fmt::format("{}: {}\r\n", OneLine(std::move(name)), OneLine(std::move(value)));
  }

  void Reply(int status, std::string content_type, std::string body) override {
    std::lock_guard lock(mutex_);
    if (state_ != State::kNew) return;
    state_ = State::kDone;
    std::string bytes = Head(status, content_type);
    bytes += fmt::format("Content-Length: {}\r\n\r\n", body.size());
    bytes += body;
    Post(std::move(bytes), /*last=*/true);
  }

  void Begin(int status, std::string content_type) override {
    std::lock_guard lock(mutex_);
    if (state_ != State::kNew) return;
    state_ = State::kStreaming;
    head_ = Head(status, content_type) + "Transfer-Encoding: chunked\r\n\r\n";
  }

  bool Write(std::string bytes) override {
    std::lock_guard lock(mutex_);
    if (state_ != State::kStreaming || gone_) return false;
    if (bytes.empty()) return true;
    if (connection_->unsent_bytes() + bytes.size() > connection_->options().max_unsent_bytes) {
      state_ = State::kDone;
      connection_->Post([connection = connection_] { connection->Close(); });
      return false;
    }
    Post(fmt::format("{}{:x}\r\n{}\r\n", std::exchange(head_, ""), bytes.size(), bytes),
         /*last=*/false);
    return true;
  }

  void Finish() override {
    std::lock_guard lock(mutex_);
    if (state_ != State::kStreaming) return;
    state_ = State::kDone;
    Post(std::exchange(head_, "") + "0\r\n\r\n", /*last=*/true);
  }

  void OnDisconnect(std::function<void()> callback) override {
    {
      std::lock_guard lock(mutex_);
      if (state_ == State::kDone) return;
      if (!gone_) {
        on_disconnect_ = std::move(callback);
        return;
      }
    }
    callback();
  }

  void ClientGone() {
    std::function<void()> callback;
    {
      std::lock_guard lock(mutex_);
      gone_ = true;
      if (state_ != State::kDone) callback = std::exchange(on_disconnect_, nullptr);
    }
    if (callback) callback();
  }

 private:
  enum class State { kNew, kStreaming, kDone };

  std::string Head(int status, const std::string& content_type) const {
    return fmt::format("HTTP/1.1 {} {}\r\nContent-Type: {}\r\n{}{}",
                       status,
                       Text(http::obsolete_reason(static_cast<http::status>(status))),
                       OneLine(content_type),
                       headers_,
                       keep_alive_ ? "" : "Connection: close\r\n");
  }

  void Post(std::string bytes, bool last) {
    connection_->AddUnsent(bytes.size());
    connection_->Post(
        [connection = connection_, bytes = std::move(bytes), last, this_keep = keep_alive_] {
          connection->Send(bytes, last, this_keep);
        });
  }

  void Cut() {
    connection_->Post([connection = connection_] { connection->Close(); });
  }

  const std::shared_ptr<HttpConnection> connection_;
  const HttpRequest request_;
  const bool keep_alive_;
  std::mutex mutex_;  // guards what follows
  std::string headers_;
  std::string head_;  // of a stream, until its first bytes go out
  State state_ = State::kNew;
  bool gone_ = false;
  std::function<void()> on_disconnect_;
};

HttpConnection::HttpConnection(std::shared_ptr<HttpShared> shared, asio::ip::tcp::socket socket)
    : shared_(std::move(shared)), stream_(std::move(socket)) {
  ++shared_->connections;
}

HttpConnection::~HttpConnection() {
  --shared_->connections;
}

void HttpConnection::ReadRequest() {
  parser_.emplace();
  parser_->header_limit(kMaxHeaderBytes);
  parser_->body_limit(shared_->options.max_body_bytes);
  stream_.expires_after(shared_->options.idle_timeout);
  http::async_read(
      stream_, buffer_, *parser_, [self = shared_from_this()](beast::error_code error, size_t) {
        self->OnRequest(error);
      });
}

void HttpConnection::OnRequest(beast::error_code error) {
  stream_.expires_never();
  if (error == http::error::body_limit) {
    return Refuse(
        413,
        fmt::format("the body is over the limit of {} bytes", shared_->options.max_body_bytes));
  }
  if (error == http::error::header_limit) {
    return Refuse(431, fmt::format("the headers are over the limit of {} bytes", kMaxHeaderBytes));
  }
  if (error && error != http::error::end_of_stream && error != http::error::partial_message &&
      error.category() == make_error_code(http::error::bad_method).category()) {
    return Refuse(400, "not an HTTP/1.1 request: " + error.message());
  }
  if (error) return Close();
  const bool keep_alive = parser_->get().keep_alive() && parser_->get().version() >= 11;
  Dispatch(ToRequest(parser_->release()), keep_alive);
}

void HttpConnection::Refuse(int status, const std::string& why) {
  auto exchange = std::make_shared<Exchange>(shared_from_this(), HttpRequest{}, false);
  exchange->Reply(status, "text/plain", why + "\n");
}

void HttpConnection::Dispatch(HttpRequest request, bool keep_alive) {
  HttpServer::Handler handler = shared_->FindRoute(request.method, request.path);
  auto exchange = std::make_shared<Exchange>(shared_from_this(), std::move(request), keep_alive);
  exchange_ = exchange;
  if (!handler) {
    exchange->Reply(
        404,
        "text/plain",
        fmt::format(
            "nothing is served at {} {}\n", exchange->request().method, exchange->request().path));
    return;
  }
  WatchForDisconnect(++exchange_number_);
  asio::post(shared_->handlers,
             [handler = std::move(handler), exchange = std::move(exchange)] { handler(exchange); });
}

void HttpConnection::WatchForDisconnect(uint64_t exchange_number) {
  stream_.socket().async_wait(
      asio::ip::tcp::socket::wait_read,
      [self = shared_from_this(), exchange_number](beast::error_code error) {
        if (error || self->exchange_number_ != exchange_number) return;
        char byte = 0;
        const auto got =
            ::recv(self->stream_.socket().native_handle(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
        if (got <= 0) self->ClientGone();
      });
}

void HttpConnection::ClientGone() {
  if (const auto exchange = exchange_.lock()) exchange->ClientGone();
}

void HttpConnection::Post(std::function<void()> work) {
  std::lock_guard lock(mutex_);
  if (!closed_) asio::post(shared_->io, std::move(work));
}

void HttpConnection::Send(std::string bytes, bool last, bool keep_alive) {
  output_.push_back(std::move(bytes));
  if (last) {
    answer_complete_ = true;
    keep_alive_ = keep_alive;
  }
  if (!writing_) WriteNext();
}

void HttpConnection::WriteNext() {
  writing_ = true;
  stream_.expires_after(shared_->options.write_timeout);
  asio::async_write(
      stream_,
      asio::buffer(output_.front()),
      [self = shared_from_this()](beast::error_code error, size_t) { self->OnWritten(error); });
}

void HttpConnection::OnWritten(beast::error_code error) {
  writing_ = false;
  if (error || output_.empty()) return Close();
  unsent_bytes_ -= output_.front().size();
  output_.pop_front();
  stream_.expires_never();
  if (!output_.empty()) return WriteNext();
  if (!answer_complete_) return;
  answer_complete_ = false;
  ++exchange_number_;  // its watch is over
  if (!keep_alive_) return Close();
  ReadRequest();
}

void HttpConnection::Close() {
  {
    std::lock_guard lock(mutex_);
    if (closed_) return;
    closed_ = true;
  }
  beast::error_code ignored;
  stream_.socket().shutdown(asio::ip::tcp::socket::shutdown_both, ignored);
  stream_.close();
  ClientGone();
}

}  // namespace baton
