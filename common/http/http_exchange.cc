#include "common/http/http_exchange.h"

#include <ctime>
#include <utility>

#include <boost/beast/http/status.hpp>

#include "common/http/http_error.h"
#include "common/http/http_head.h"

namespace baton {
namespace {

namespace http = boost::beast::http;

constexpr int kNoContent = 204;

std::string ReasonOf(int status) {
  const auto reason = http::obsolete_reason(static_cast<http::status>(status));
  return {reason.data(), reason.size()};
}

}  // namespace

ConnectionExchange::ConnectionExchange(std::shared_ptr<HttpConnection> connection,
                                       HttpRequest request,
                                       bool keep_alive,
                                       ByteBudget::Share body_share)
    : connection_(std::move(connection)),
      keep_alive_(keep_alive),
      head_only_(request.method == "HEAD"),
      request_(std::move(request)),
      body_share_(std::move(body_share)) {}

ConnectionExchange::~ConnectionExchange() {
  Fail(500, "the handler gave no answer");
}

void ConnectionExchange::AddHeader(std::string name, std::string value) {
  std::lock_guard lock(mutex_);
  headers_ += fmt::format("{}: {}\r\n", OneLine(std::move(name)), OneLine(std::move(value)));
}

void ConnectionExchange::Reply(int status, std::string content_type, std::string body) {
  std::lock_guard lock(mutex_);
  if (state_ == State::kNew) ReplyLocked(status, content_type, body);
}

void ConnectionExchange::ReplyLocked(int status,
                                     const std::string& content_type,
                                     const std::string& body) {
  state_ = State::kDone;
  FreeBody();
  std::string bytes = Head(status, content_type);
  if (status != kNoContent) bytes += fmt::format("Content-Length: {}\r\n", body.size());
  bytes += "\r\n";
  if (!head_only_) bytes += body;
  Post(std::move(bytes), /*last=*/true);
}

void ConnectionExchange::Fail(int status, const std::string& message) {
  std::lock_guard lock(mutex_);
  if (state_ == State::kNew) ReplyLocked(status, kHttpErrorType, HttpErrorBody(status, message));
  if (state_ == State::kStreaming) {
    state_ = State::kDone;
    connection_->Post([connection = connection_] { connection->Close(); });
  }
}

void ConnectionExchange::Begin(int status, std::string content_type) {
  std::lock_guard lock(mutex_);
  if (state_ != State::kNew) return;
  FreeBody();
  head_ = Head(status, content_type) + "Transfer-Encoding: chunked\r\n\r\n";
  state_ = head_only_ ? State::kDone : State::kStreaming;
  if (head_only_) Post(std::move(head_), /*last=*/true);
}

bool ConnectionExchange::Write(std::string bytes) {
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

void ConnectionExchange::Finish() {
  std::lock_guard lock(mutex_);
  if (state_ != State::kStreaming) return;
  state_ = State::kDone;
  Post(std::exchange(head_, "") + "0\r\n\r\n", /*last=*/true);
}

void ConnectionExchange::OnDisconnect(std::function<void()> callback) {
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

void ConnectionExchange::OnClientDisconnect() {
  std::function<void()> callback;
  {
    std::lock_guard lock(mutex_);
    gone_ = true;
    if (state_ != State::kDone) callback = std::exchange(on_disconnect_, nullptr);
  }
  if (callback) callback();
}

std::string ConnectionExchange::Head(int status, const std::string& content_type) const {
  std::string head = fmt::format("HTTP/1.1 {} {}\r\nDate: {}\r\nx-request-id: {}\r\n",
                                 status,
                                 ReasonOf(status),
                                 HttpDate(std::time(nullptr)),
                                 request_.id);
  if (status != kNoContent) head += fmt::format("Content-Type: {}\r\n", OneLine(content_type));
  head += headers_;
  if (!keep_alive_) head += "Connection: close\r\n";
  return head;
}

void ConnectionExchange::FreeBody() {
  std::string().swap(request_.body);
  body_share_.Release();
}

void ConnectionExchange::Post(std::string bytes, bool last) {
  connection_->AddUnsent(bytes.size());
  connection_->Post([connection = connection_,
                     bytes = std::move(bytes),
                     last,
                     keep_alive = keep_alive_]() mutable {
    connection->Send(std::move(bytes), last, keep_alive);
  });
}

}  // namespace baton
