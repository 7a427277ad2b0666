#include "common/http/http_exchange.h"

#include <ctime>
#include <string_view>
#include <utility>

#include "common/http/http_error.h"
#include "common/http/http_head.h"

namespace baton {
namespace {

constexpr int kNoContent = 204;
// Anthropic's name of x-request-id.
constexpr std::string_view kAnthropicId = "request-id";

}  // namespace

ConnectionExchange::ConnectionExchange(std::unique_ptr<HttpAnswerWriter> writer,
                                       HttpRequest request,
                                       ByteBudget::Share body_share)
    : writer_(std::move(writer)),
      head_only_(request.method == "HEAD"),
      request_(std::move(request)),
      body_share_(std::move(body_share)) {}

ConnectionExchange::~ConnectionExchange() {
  Fail(500, "the handler gave no answer");
}

void ConnectionExchange::AddHeader(std::string name, std::string value) {
  std::lock_guard lock(mutex_);
  headers_.emplace_back(OneLine(std::move(name)), OneLine(std::move(value)));
}

void ConnectionExchange::Reply(int status, std::string content_type, std::string body) {
  std::lock_guard lock(mutex_);
  if (state_ == State::kNew) ReplyLocked(status, content_type, std::move(body));
}

void ConnectionExchange::ReplyLocked(int status,
                                     const std::string& content_type,
                                     std::string body) {
  state_ = State::kDone;
  FreeBody();
  HttpAnswerHead head = Head(status, content_type);
  if (status != kNoContent) head.body_bytes = body.size();
  if (!head.has_body) body.clear();
  writer_->Send(std::move(head), std::move(body), /*last=*/true);
}

void ConnectionExchange::Fail(int status, const std::string& message) {
  std::lock_guard lock(mutex_);
  if (state_ == State::kNew) {
    // As the body, the head has the form of both APIs. A handler may have added the header before
    // it failed.
    std::erase_if(headers_, [](const auto& header) { return header.first == kAnthropicId; });
    headers_.emplace_back(kAnthropicId, request_.id);
    ReplyLocked(status, kHttpErrorType, HttpErrorBody(status, message));
  }
  if (state_ == State::kStreaming) {
    state_ = State::kDone;
    writer_->Abort(HttpAbort::kFailed);
  }
}

void ConnectionExchange::Begin(int status, std::string content_type) {
  std::lock_guard lock(mutex_);
  if (state_ != State::kNew) return;
  FreeBody();
  head_ = Head(status, content_type);
  head_->streamed = true;
  state_ = head_only_ ? State::kDone : State::kStreaming;
  if (head_only_) writer_->Send(std::exchange(head_, std::nullopt), "", /*last=*/true);
}

bool ConnectionExchange::Write(std::string bytes) {
  std::lock_guard lock(mutex_);
  if (state_ != State::kStreaming || gone_) return false;
  if (bytes.empty()) return true;
  if (!CheckRoom(bytes.size())) return false;
  writer_->Send(std::exchange(head_, std::nullopt), std::move(bytes), /*last=*/false);
  return true;
}

void ConnectionExchange::Finish(std::string bytes) {
  std::lock_guard lock(mutex_);
  if (state_ != State::kStreaming || !CheckRoom(bytes.size())) return;
  state_ = State::kDone;
  writer_->Send(std::exchange(head_, std::nullopt), std::move(bytes), /*last=*/true);
}

bool ConnectionExchange::CheckRoom(size_t bytes) {
  if (bytes == 0 || writer_->HasRoom(bytes)) return true;
  state_ = State::kDone;
  writer_->Abort(HttpAbort::kReadTooSlowly);
  return false;
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

HttpAnswerHead ConnectionExchange::Head(int status, const std::string& content_type) const {
  HttpAnswerHead head;
  head.status = status;
  head.has_body = !head_only_ && status != kNoContent;
  head.headers.emplace_back("Date", HttpDate(std::time(nullptr)));
  head.headers.emplace_back("x-request-id", request_.id);
  if (status != kNoContent) head.headers.emplace_back("Content-Type", OneLine(content_type));
  head.headers.insert(head.headers.end(), headers_.begin(), headers_.end());
  return head;
}

void ConnectionExchange::FreeBody() {
  std::string().swap(request_.body);
  body_share_.Release();
}

}  // namespace baton
