#include "common/http/http_connection.h"

#include <sys/socket.h>

#include <utility>
#include <vector>

#include <boost/asio/post.hpp>
#include <boost/beast/http/error.hpp>

#include "common/http/http_error.h"
#include "common/http/http_exchange.h"
#include "common/log/log.h"

namespace baton {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;

constexpr size_t kHeadReadBytes = 4 << 10;
constexpr size_t kBodyReadBytes = 32 << 10;
constexpr size_t kMaxChunkLineBytes = 16 << 10;  // a size line with extensions, or all trailers
constexpr size_t kShortestChunkedBody = 5;       // "0", CR LF, CR LF
constexpr size_t kMaxParts = 64;                 // buffers of one write
constexpr Duration kLingerTime = std::chrono::seconds(2);

const Logger kLog("http");

}  // namespace

HttpShared::HttpShared(const HttpServerOptions& options_in)
    : options(options_in),
      probe(options.metrics == nullptr ? own_metrics : *options.metrics),
      slots({options.max_connections,
             options.max_connections_per_address,
             options.reserved_connections}),
      waiting_bodies(options.max_waiting_body_bytes),
      handlers(static_cast<size_t>(options.handler_threads)) {}

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
  Arm(shared_->options.header_timeout);
  stream_->AsyncHandshake(
      [self = shared_from_this()](beast::error_code error) { self->OnHandshake(error); });
}

void HttpConnection::OnHandshake(beast::error_code error) {
  if (phase_ == Phase::kClosed) return;
  if (!error) return NextRequest(shared_->options.header_timeout);
  shared_->probe.OnFailedHandshake();
  kLog.Debug("{}: the TLS handshake failed: {}", slot_.address(), error.message());
  Close();
}

void HttpConnection::NextRequest(Duration limit) {
  phase_ = Phase::kHead;
  parser_.emplace();
  parser_->header_limit(static_cast<uint32_t>(shared_->options.max_header_bytes));
  max_body_bytes_ = shared_->options.max_body_bytes;
  parser_->body_limit(max_body_bytes_);
  parsed_bytes_ = 0;
  request_ = {};
  route_ = {};
  body_share_ = ByteBudget::Share(shared_->waiting_bodies);
  Arm(buffer_.size() > 0 ? shared_->options.header_timeout : limit);
  Parse();
}

void HttpConnection::Read() {
  if (reading_) return;
  reading_ = true;
  const size_t bytes = phase_ == Phase::kBody ? kBodyReadBytes : kHeadReadBytes;
  stream_->AsyncRead(buffer_.prepare(bytes),
                     [self = shared_from_this()](beast::error_code error, size_t got) {
                       self->OnRead(error, got);
                     });
}

void HttpConnection::OnRead(beast::error_code error, size_t bytes) {
  reading_ = false;
  if (phase_ == Phase::kClosed || phase_ == Phase::kLinger) return;
  if (phase_ == Phase::kAnswer) {
    buffer_.commit(bytes);
    return OnReadDuringAnswer(error);
  }
  if (timed_out_) {
    if (phase_ == Phase::kHead && !parser_->got_some()) return Close();
    return Refuse(408,
                  phase_ == Phase::kHead ? "the header did not come in time"
                                         : "the body did not come in time");
  }
  if (error) return Close();
  if (!parser_->got_some()) Arm(shared_->options.header_timeout);
  buffer_.commit(bytes);
  Parse();
}

// Boost.Beast before 1.86 aborts a build with assertions when it receives "0\r\n", the first bytes
// of an empty chunked body, and then the rest byte by byte (boostorg/beast#2861).
bool HttpConnection::HasBytesToParse() const {
  const bool begins_chunks = phase_ == Phase::kBody && parsed_bytes_ == 0 && parser_->chunked();
  return buffer_.size() >= (begins_chunks ? kShortestChunkedBody : 1);
}

void HttpConnection::Parse() {
  while (HasBytesToParse()) {
    beast::error_code error;
    const size_t used = parser_->put(buffer_.cdata(), error);
    buffer_.consume(used);
    parsed_bytes_ += used;
    const bool need_more = error == http::error::need_more;
    if (error && !need_more) return OnParseError(error);
    if (!CheckSizes(need_more)) return;
    if (phase_ == Phase::kHead && parser_->is_header_done() && !OnHead()) return;
    if (parser_->is_done()) return Dispatch();
    if (need_more) break;
  }
  Read();
}

bool HttpConnection::CheckSizes(bool need_more) {
  const HttpServerOptions& limits = shared_->options;
  const size_t sent = parsed_bytes_ + (need_more ? buffer_.size() : 0);
  if (phase_ == Phase::kHead) {
    if (sent <= limits.max_header_bytes) return true;
    Refuse(431, fmt::format("the header is over the limit of {} bytes", limits.max_header_bytes));
    return false;
  }
  if (sent > max_body_bytes_) {
    Refuse(413, fmt::format("the body is over the limit of {} bytes", max_body_bytes_));
  } else if (need_more && buffer_.size() > kMaxChunkLineBytes) {
    Refuse(400,
           fmt::format("a chunk's size line, or the trailer, is over the limit of {} bytes",
                       kMaxChunkLineBytes));
  } else if (!body_share_.GrowTo(parser_->get().body().size())) {
    Refuse(503,
           fmt::format("the bodies of requests that wait for an answer have reached the limit of "
                       "{} bytes",
                       limits.max_waiting_body_bytes));
  } else {
    return true;
  }
  return false;
}

void HttpConnection::OnParseError(beast::error_code error) {
  const HttpServerOptions& limits = shared_->options;
  if (error == http::error::body_limit) {
    return Refuse(413, fmt::format("the body is over the limit of {} bytes", max_body_bytes_));
  }
  if (error == http::error::header_limit) {
    return Refuse(431,
                  fmt::format("the header is over the limit of {} bytes", limits.max_header_bytes));
  }
  Refuse(400, "not an HTTP/1.1 request: " + error.message());
}

bool HttpConnection::OnHead() {
  const HttpHead& head = parser_->get().base();
  phase_ = Phase::kBody;
  parsed_bytes_ = 0;
  request_ = ToRequest(head);
  request_.client = slot_.address();
  HttpRefusal refusal = CheckFraming(head);
  if (refusal.status == 0) refusal = CheckExpect(head);
  if (refusal.status != 0) {
    Refuse(refusal.status, refusal.message);
    return false;
  }
  if (!PassGate() || !FindRoute()) return false;
  parser_->eager(true);
  if (parser_->is_done()) return true;
  Arm(shared_->options.body_timeout);
  if (ExpectsContinue(head) && head.version() >= 11 && buffer_.size() == 0) Continue();
  return true;
}

bool HttpConnection::PassGate() {
  if (!shared_->options.gate) return true;
  HttpVerdict verdict = shared_->options.gate(request_);
  if (verdict.status != 0) {
    Refuse(verdict.status, verdict.message, verdict.challenge);
    return false;
  }
  if (!verdict.client.empty()) request_.client = std::move(verdict.client);
  if (verdict.max_body_bytes == 0 || verdict.max_body_bytes >= max_body_bytes_) return true;
  max_body_bytes_ = verdict.max_body_bytes;
  // The parser has checked the length that the header states against the server's limit.
  const auto stated = parser_->content_length();
  if (stated && *stated > max_body_bytes_) {
    Refuse(413, fmt::format("the body is over this key's limit of {} bytes", max_body_bytes_));
    return false;
  }
  parser_->body_limit(max_body_bytes_);
  return true;
}

bool HttpConnection::FindRoute() {
  HttpRoutes::Match match = shared_->routes.Find(request_.method, request_.path);
  route_ = std::move(match.route);
  if (slot_.reserved() && !route_.is_probe) {
    Refuse(503, slot_.over_limit());
    return false;
  }
  if (route_.handler) return true;
  const bool any = request_.method == "OPTIONS" && request_.path == "*";
  const bool keep_alive = parser_->is_done() && keeps_alive();
  const std::string target = Shown(fmt::format("{} {}", request_.method, request_.path));
  const bool options = request_.method == "OPTIONS" && (any || !match.allow.empty());
  const auto exchange = MakeExchange(keep_alive);
  if (any) match.allow = "GET, HEAD, POST, OPTIONS";
  if (!match.allow.empty()) exchange->AddHeader("Allow", match.allow);
  if (options) {
    exchange->Reply(204, "", "");
  } else {
    const int status = match.allow.empty() ? 404 : 405;
    shared_->probe.OnRefused(status);
    exchange->Fail(
        status,
        status == 404
            ? fmt::format("nothing is served at {}", target)
            : fmt::format("{} is not possible; possible methods are {}", target, match.allow));
  }
  return false;
}

bool HttpConnection::keeps_alive() const {
  return parser_->keep_alive() && parser_->get().version() >= 11 && !slot_.reserved();
}

void HttpConnection::Continue() {
  std::string interim = "HTTP/1.1 100 Continue\r\n\r\n";
  AddUnsent(interim.size());
  Send(std::move(interim), /*last=*/false, /*keep_alive=*/true);
}

std::shared_ptr<ConnectionExchange> HttpConnection::MakeExchange(bool keep_alive) {
  phase_ = Phase::kAnswer;
  timer_.cancel();
  auto exchange = std::make_shared<ConnectionExchange>(
      shared_from_this(), std::move(request_), keep_alive, std::move(body_share_));
  exchange_ = exchange;
  return exchange;
}

void HttpConnection::Refuse(int status, const std::string& why, const std::string& challenge) {
  shared_->probe.OnRefused(status);
  if (request_.id.empty()) request_ = ToRequest(parser_->get().base());
  const auto exchange = MakeExchange(/*keep_alive=*/false);
  parser_.reset();  // frees the received part of the body while the connection lingers
  if (status == 503) exchange->AddHeader("Retry-After", "1");
  if (!challenge.empty()) exchange->AddHeader("WWW-Authenticate", challenge);
  exchange->Fail(status, why);
}

void HttpConnection::Dispatch() {
  const bool keep_alive = keeps_alive();
  request_.body = std::move(parser_->get().body());
  const HttpServer::Handler handler = std::move(route_.handler);
  auto exchange = MakeExchange(keep_alive);
  if (buffer_.size() == 0 && buffer_.capacity() > kHeadReadBytes) {
    buffer_.clear();
    buffer_.shrink_to_fit();
  }
  WatchForDisconnect(++exchange_number_);
  asio::post(route_.is_probe ? shared_->probe_handlers : shared_->handlers,
             [shared = shared_, handler, exchange = std::move(exchange)] {
               std::string why = "an exception of an unknown type";
               try {
                 return handler(exchange);
               } catch (const std::exception& exception) {
                 why = exception.what();
               } catch (...) {
               }
               shared->probe.OnException();
               kLog.Error("request {}: the handler of {} {} failed: {}",
                          exchange->request().id,
                          exchange->request().method,
                          Shown(exchange->request().path),
                          why);
               exchange->Fail(500, "the server failed to handle this request; its log says why");
             });
}

void HttpConnection::OnReadDuringAnswer(beast::error_code error) {
  if (error) OnClientDisconnect();
}

void HttpConnection::WatchForDisconnect(uint64_t exchange_number) {
  if (stream_->is_encrypted()) {
    if (buffer_.size() == 0) Read();
    return;
  }
  stream_->socket().async_wait(
      asio::ip::tcp::socket::wait_read,
      [self = shared_from_this(), exchange_number](beast::error_code error) {
        if (error || self->exchange_number_ != exchange_number) return;
        char byte = 0;
        const auto got =
            ::recv(self->stream_->socket().native_handle(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
        if (got <= 0) self->OnClientDisconnect();
      });
}

void HttpConnection::OnClientDisconnect() {
  if (const auto exchange = exchange_.lock()) exchange->OnClientDisconnect();
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
  if (writing_ == 0) WriteNext();
}

void HttpConnection::WriteNext() {
  if (phase_ == Phase::kAnswer) Arm(shared_->options.write_timeout);
  std::vector<asio::const_buffer> parts;
  for (const std::string& part : output_) {
    parts.push_back(asio::buffer(part));
    if (parts.size() == kMaxParts) break;
  }
  writing_ = parts.size();
  stream_->AsyncWrite(parts, [self = shared_from_this()](beast::error_code error, size_t) {
    self->OnWritten(error);
  });
}

void HttpConnection::OnWritten(beast::error_code error) {
  if (error) return Close();
  for (; writing_ > 0; --writing_) {
    unsent_bytes_ -= output_.front().size();
    output_.pop_front();
  }
  if (!output_.empty()) return WriteNext();
  if (phase_ == Phase::kAnswer) timer_.cancel();
  if (!answer_complete_) return;
  answer_complete_ = false;
  ++exchange_number_;  // ends WatchForDisconnect of this exchange
  if (!keep_alive_) return Linger();
  NextRequest(shared_->options.idle_timeout);
}

void HttpConnection::Linger() {
  phase_ = Phase::kLinger;
  Arm(kLingerTime);
  buffer_.clear();
  stream_->AsyncShutdown([self = shared_from_this()](beast::error_code) {
    if (self->phase_ != Phase::kLinger) return;
    // The shutdown of an encrypted stream has also awaited the client's.
    if (self->stream_->is_encrypted()) return self->Close();
    self->Discard();
  });
}

void HttpConnection::Discard() {
  stream_->AsyncRead(buffer_.prepare(kBodyReadBytes),
                     [self = shared_from_this()](beast::error_code error, size_t) {
                       if (error) return self->Close();
                       self->Discard();
                     });
}

void HttpConnection::Arm(Duration limit) {
  timer_.expires_after(limit);
  timer_.async_wait([weak = weak_from_this()](beast::error_code error) {
    const auto self = weak.lock();
    // The timer may have been armed again after this wait had ended.
    if (error || self == nullptr || self->timer_.expiry() > SteadyClock().Now()) return;
    self->OnTimeout();
  });
}

void HttpConnection::OnTimeout() {
  if (phase_ != Phase::kHead && phase_ != Phase::kBody) return Close();
  timed_out_ = true;
  beast::error_code ignored;
  stream_->socket().cancel(ignored);  // OnRead is called next and answers
}

void HttpConnection::Close() {
  {
    std::lock_guard lock(mutex_);
    if (closed_) return;
    closed_ = true;
  }
  phase_ = Phase::kClosed;
  timer_.cancel();
  beast::error_code ignored;
  stream_->socket().shutdown(asio::ip::tcp::socket::shutdown_both, ignored);
  stream_->socket().close(ignored);
  slot_.Release();
  OnClientDisconnect();
}

}  // namespace baton
