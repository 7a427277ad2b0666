#include "common/http/http_connection.h"

#include <string_view>
#include <utility>
#include <vector>

#include <boost/asio/post.hpp>

#include "common/http/http1_session.h"
#include "common/http/http2_session.h"
#include "common/log/log.h"

namespace baton {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;

constexpr size_t kFirstReadBytes = 4 << 10;
constexpr size_t kDiscardBytes = 32 << 10;
constexpr size_t kMaxParts = 64;  // buffers of one write
// The first bytes of a client that speaks HTTP/2 (RFC 9113, section 3.4).
constexpr std::string_view kHttp2Preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

const Logger kLog("http");

}  // namespace

HttpConnection::HttpConnection(std::shared_ptr<HttpShared> shared,
                               std::unique_ptr<HttpStream> stream,
                               ConnectionSlots::Slot slot)
    : shared_(std::move(shared)),
      slot_(std::move(slot)),
      stream_(std::move(stream)),
      timer_(shared_->io) {}

HttpConnection::~HttpConnection() {
  std::lock_guard lock(shared_->mutex);
  shared_->open.erase(this);
  shared_->probe.SetConnections(static_cast<int>(shared_->open.size()));
}

void HttpConnection::Start() {
  {
    std::lock_guard lock(shared_->mutex);
    shared_->open[this] = weak_from_this();
    shared_->probe.SetConnections(static_cast<int>(shared_->open.size()));
  }
  if (!slot_.reserved()) {
    stranger_ = shared_->strangers.insert(shared_->strangers.end(), weak_from_this());
  }
  Arm(shared_->options.header_timeout);
  stream_->AsyncHandshake(
      [self = shared_from_this()](error_code error) { self->OnHandshake(error); });
}

void HttpConnection::EndStranger() {
  if (stranger_.has_value()) shared_->strangers.erase(*std::exchange(stranger_, std::nullopt));
}

bool HttpConnection::is_dispensable() const {
  if (phase_ == Phase::kServe) return session_->is_idle();
  return phase_ != Phase::kClosed;
}

bool HttpConnection::reads_plain_http1() const {
  return !stream_->is_encrypted() && !is_http2_;
}

void HttpConnection::OnHandshake(error_code error) {
  if (phase_ == Phase::kClosed) return;
  if (error) {
    shared_->probe.OnFailedHandshake();
    kLog.Debug("{}: the TLS handshake failed: {}", slot_.address(), error.message());
    return Close();
  }
  if (stream_->is_http2()) return ServeHttp2();
  if (stream_->is_encrypted()) return ServeHttp1();
  phase_ = Phase::kProtocol;
  Read(kFirstReadBytes);
}

void HttpConnection::ChooseProtocol() {
  const std::string_view bytes(static_cast<const char*>(input_.cdata().data()), input_.size());
  if (bytes.starts_with(kHttp2Preface)) return ServeHttp2();
  if (!kHttp2Preface.starts_with(bytes)) return ServeHttp1();
  Read(kFirstReadBytes);
}

void HttpConnection::ServeHttp1() {
  phase_ = Phase::kServe;
  session_ = std::make_unique<Http1Session>(*this);
  session_->Start();
}

void HttpConnection::ServeHttp2() {
  phase_ = Phase::kServe;
  is_http2_ = true;
  session_ = std::make_unique<Http2Session>(*this);
  session_->Start();
}

void HttpConnection::Read(size_t bytes) {
  if (reading_) return;
  reading_ = true;
  stream_->AsyncRead(
      input_.prepare(bytes),
      [self = shared_from_this()](error_code error, size_t got) { self->OnRead(error, got); });
}

void HttpConnection::OnRead(error_code error, size_t bytes) {
  reading_ = false;
  if (phase_ == Phase::kClosed) return;
  if (phase_ == Phase::kLinger) {
    if (stream_->is_encrypted()) return;  // the end is awaited by AsyncShutdown
    return error ? Close() : Discard();
  }
  input_.commit(bytes);
  if (phase_ == Phase::kServe) return session_->OnRead(error);
  if (error) return Close();
  ChooseProtocol();
}

void HttpConnection::Post(std::function<void()> work) {
  std::lock_guard lock(mutex_);
  if (!closed_) asio::post(shared_->io, std::move(work));
}

void HttpConnection::Write(std::string bytes) {
  output_.push_back(std::move(bytes));
  if (writing_ == 0) WriteNext();
}

void HttpConnection::WriteNext() {
  std::vector<asio::const_buffer> parts;
  for (const std::string& part : output_) {
    parts.push_back(asio::buffer(part));
    if (parts.size() == kMaxParts) break;
  }
  writing_ = parts.size();
  session_->OnWriteBegins();
  stream_->AsyncWrite(
      parts, [self = shared_from_this()](error_code error, size_t) { self->OnWritten(error); });
}

void HttpConnection::OnWritten(error_code error) {
  if (error || phase_ == Phase::kClosed) return Close();
  size_t bytes = 0;
  for (; writing_ > 0; --writing_) {
    bytes += output_.front().size();
    output_.pop_front();
  }
  const bool all = output_.empty();
  if (!all) WriteNext();
  session_->OnWritten(bytes, all);
}

void HttpConnection::Linger(Duration limit) {
  phase_ = Phase::kLinger;
  Arm(limit);
  input_.clear();
  stream_->AsyncShutdown([self = shared_from_this()](error_code) {
    if (self->phase_ != Phase::kLinger) return;
    // The shutdown of an encrypted stream has also awaited the client's.
    if (self->stream_->is_encrypted()) return self->Close();
    self->Discard();
  });
}

void HttpConnection::Discard() {
  Read(kDiscardBytes);
}

void HttpConnection::Arm(Duration limit) {
  deadline_ = SteadyClock().Now() + limit;
  if (!waiting_ || deadline_ < timer_.expiry()) AwaitDeadline();
}

void HttpConnection::AwaitDeadline() {
  waiting_ = true;
  timer_.expires_at(deadline_);
  timer_.async_wait([weak = weak_from_this()](error_code error) {
    const auto self = weak.lock();
    // The timer may have been set again after this wait had ended.
    if (error || self == nullptr || self->timer_.expiry() > SteadyClock().Now()) return;
    self->waiting_ = false;
    if (self->deadline_ == kNever) return;
    if (self->deadline_ > SteadyClock().Now()) return self->AwaitDeadline();
    self->deadline_ = kNever;
    self->OnTimeout();
  });
}

void HttpConnection::OnTimeout() {
  if (phase_ == Phase::kClosed) return;
  if (phase_ == Phase::kServe) return session_->OnTimeout();
  Close();
}

void HttpConnection::Drain() {
  if (phase_ == Phase::kServe) session_->Drain();
}

void HttpConnection::Stop() {
  if (phase_ == Phase::kServe) return session_->Stop();
  Close();
}

void HttpConnection::Close() {
  {
    std::lock_guard lock(mutex_);
    if (closed_) return;
    closed_ = true;
  }
  phase_ = Phase::kClosed;
  EndStranger();
  Disarm();
  timer_.cancel();
  error_code ignored;
  stream_->socket().shutdown(asio::ip::tcp::socket::shutdown_both, ignored);
  stream_->socket().close(ignored);
  slot_.Release();
  if (session_ != nullptr) session_->OnClosed();
}

}  // namespace baton
