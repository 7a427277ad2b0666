#include "common/http/http1_session.h"

#include <sys/socket.h>

#include <string_view>
#include <utility>

#include <boost/beast/http/error.hpp>

#include "common/http/http1_answer.h"
#include "common/http/http_exchange.h"
#include "common/http/http_serving.h"

namespace baton {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;

constexpr size_t kHeadReadBytes = 4 << 10;
constexpr size_t kBodyReadBytes = 32 << 10;
constexpr size_t kMaxChunkLineBytes = 16 << 10;  // a size line with extensions, or all trailers
constexpr size_t kShortestChunkedBody = 5;       // "0", CR LF, CR LF

// Whether `bytes`, which the parser keeps until more arrive, may become a chunk's size line or the
// last chunk with its trailer (RFC 9112, section 7.1). The parser looks only for CR LF, so it would
// wait for the rest of a line that another end, or another first character, has already spoilt.
// `is_first`: no chunk, whose data ends with CR LF, comes before.
bool MayBecomeChunk(std::string_view bytes, bool is_first) {
  for (size_t at = bytes.find('\n'); at != bytes.npos; at = bytes.find('\n', at + 1)) {
    if (at == 0 || bytes[at - 1] != '\r') return false;
  }
  if (!is_first && bytes == "\r") return true;
  if (!is_first && bytes.starts_with("\r\n")) bytes.remove_prefix(2);
  const size_t digits = bytes.find_first_not_of("0123456789abcdefABCDEF");
  if (digits == bytes.npos) return true;
  return digits > 0 && std::string_view("; \t\r").find(bytes[digits]) != bytes.npos;
}

}  // namespace

void Http1Session::Start() {
  NextRequest(shared().options.header_timeout);
}

void Http1Session::NextRequest(Duration limit) {
  phase_ = Phase::kHead;
  parser_.emplace();
  parser_->header_limit(static_cast<uint32_t>(shared().options.max_header_bytes));
  max_body_bytes_ = shared().options.max_body_bytes;
  parser_->body_limit(max_body_bytes_);
  parsed_bytes_ = 0;
  request_ = {};
  route_ = {};
  body_share_ = ByteBudget::Share(shared().waiting_bodies);
  connection_.Arm(connection_.input().size() > 0 ? shared().options.header_timeout : limit);
  Parse();
}

void Http1Session::Read() {
  connection_.Read(phase_ == Phase::kBody ? kBodyReadBytes : kHeadReadBytes);
}

void Http1Session::OnRead(beast::error_code error) {
  if (phase_ == Phase::kAnswer) {
    if (error) OnClientDisconnect();
    return;
  }
  if (timed_out_) {
    if (phase_ == Phase::kHead && !parser_->got_some()) return connection_.Close();
    return Refuse({408,
                   phase_ == Phase::kHead ? "the header did not come in time"
                                          : "the body did not come in time"});
  }
  if (error) return connection_.Close();
  if (!parser_->got_some()) connection_.Arm(shared().options.header_timeout);
  Parse();
}

// Boost.Beast before 1.86 aborts a build with assertions when it receives "0\r\n", the first bytes
// of an empty chunked body, and then the rest byte by byte (boostorg/beast#2861).
bool Http1Session::HasBytesToParse() const {
  const bool begins_chunks = phase_ == Phase::kBody && parsed_bytes_ == 0 && parser_->chunked();
  return connection_.input().size() >= (begins_chunks ? kShortestChunkedBody : 1);
}

void Http1Session::Parse() {
  beast::flat_buffer& input = connection_.input();
  while (HasBytesToParse()) {
    beast::error_code error;
    const size_t used = parser_->put(input.cdata(), error);
    // The parser takes a header only when all of it is there, and the last chunk with its trailer.
    const std::string_view taken(static_cast<const char*>(input.cdata().data()), used);
    const bool trailer = parser_->chunked() && parser_->is_done();
    const bool folded = (phase_ == Phase::kHead || trailer) && HasFoldedLine(taken);
    input.consume(used);
    parsed_bytes_ += used;
    const bool need_more = error == http::error::need_more;
    if (error && !need_more) return OnParseError(error);
    if (!CheckSizes(need_more)) return;
    if (folded) return Refuse({400, "a line of the header or trailer begins with a space"});
    if (phase_ == Phase::kHead && parser_->is_header_done() && !OnHead()) return;
    if (parser_->is_done()) return Dispatch();
    if (need_more) break;
  }
  if (phase_ == Phase::kBody && parser_->chunked() && input.size() > 0) {
    const std::string_view waiting(static_cast<const char*>(input.cdata().data()), input.size());
    if (!MayBecomeChunk(waiting, parsed_bytes_ == 0)) {
      return Refuse({400,
                     "a chunk must begin with its size in hexadecimal digits, and each line of the "
                     "framing must end with CR LF"});
    }
  }
  Read();
}

bool Http1Session::CheckSizes(bool need_more) {
  const HttpServerOptions& limits = shared().options;
  const size_t waiting = need_more ? connection_.input().size() : 0;
  const size_t sent = parsed_bytes_ + waiting;
  if (phase_ == Phase::kHead) {
    if (sent <= limits.max_header_bytes) return true;
    Refuse(HeaderTooLarge(limits.max_header_bytes));
    return false;
  }
  if (sent > max_body_bytes_) {
    Refuse(BodyTooLarge(max_body_bytes_));
  } else if (waiting > kMaxChunkLineBytes) {
    Refuse({400,
            fmt::format("a chunk's size line, or the trailer, is over the limit of {} bytes",
                        kMaxChunkLineBytes)});
  } else if (!body_share_.GrowTo(parser_->get().body().size())) {
    Refuse(TooManyWaitingBodies(fmt::format("{} bytes", limits.max_waiting_body_bytes)));
  } else {
    return true;
  }
  return false;
}

void Http1Session::OnParseError(beast::error_code error) {
  if (error == http::error::body_limit) return Refuse(BodyTooLarge(max_body_bytes_));
  if (error == http::error::header_limit) {
    return Refuse(HeaderTooLarge(shared().options.max_header_bytes));
  }
  Refuse({400, "not an HTTP/1.1 request: " + error.message()});
}

bool Http1Session::OnHead() {
  const HttpHead& head = parser_->get().base();
  phase_ = Phase::kBody;
  parsed_bytes_ = 0;
  request_ = ToRequest(head);
  request_.client = connection_.slot().address();
  request_.certificate = connection_.stream().certificate_name();
  HttpRefusal refusal = CheckFraming(head);
  if (refusal.status == 0) refusal = CheckHost(head);
  if (refusal.status == 0) refusal = CheckExpect(request_);
  if (refusal.status != 0) {
    Refuse(refusal);
    return false;
  }
  if (!Admit()) return false;
  // Of a chunked body the parser takes one chunk at a time, so that Parse sees the trailer alone.
  parser_->eager(!parser_->chunked());
  if (parser_->is_done()) return true;
  connection_.Arm(shared().options.body_timeout);
  const bool is_new = head.version() >= 11;
  if (ExpectsContinue(request_) && is_new && connection_.input().size() == 0) Continue();
  return true;
}

bool Http1Session::Admit() {
  std::optional<uint64_t> stated;
  if (const auto length = parser_->content_length()) stated = *length;
  HttpAdmission admission = AdmitRequest(shared(), connection_.slot(), stated, request_);
  if (admission.refusal.status != 0) {
    Refuse(admission.refusal);
    return false;
  }
  max_body_bytes_ = admission.max_body_bytes;
  parser_->body_limit(max_body_bytes_);
  if (admission.proven) connection_.EndStranger();
  route_ = std::move(admission.match.route);
  if (route_.handler) return true;
  const auto exchange = MakeExchange(parser_->is_done() && keeps_alive());
  AnswerWithoutHandler(shared(), *exchange, admission.match);
  return false;
}

bool Http1Session::keeps_alive() const {
  return parser_->keep_alive() && parser_->get().version() >= 11 && !connection_.slot().reserved();
}

void Http1Session::Continue() {
  std::string interim = "HTTP/1.1 100 Continue\r\n\r\n";
  unsent_.Add(interim.size());
  Send(std::move(interim), /*last=*/false, /*keep_alive=*/true);
}

std::shared_ptr<ConnectionExchange> Http1Session::MakeExchange(bool keep_alive) {
  phase_ = Phase::kAnswer;
  connection_.Disarm();
  auto writer = std::make_unique<Http1Answer>(connection_.shared_from_this(), *this, keep_alive);
  auto exchange = std::make_shared<ConnectionExchange>(
      std::move(writer), std::move(request_), std::move(body_share_));
  exchange_ = exchange;
  return exchange;
}

void Http1Session::Refuse(const HttpRefusal& refusal) {
  if (request_.id.empty()) request_ = ToRequest(parser_->get().base());
  const auto exchange = MakeExchange(/*keep_alive=*/false);
  parser_.reset();  // frees the received part of the body while the connection lingers
  AnswerRefusal(shared(), *exchange, refusal);
}

void Http1Session::Dispatch() {
  const bool keep_alive = keeps_alive();
  request_.body = std::move(parser_->get().body());
  auto exchange = MakeExchange(keep_alive);
  beast::flat_buffer& input = connection_.input();
  if (input.size() == 0 && input.capacity() > kHeadReadBytes) {
    input.clear();
    input.shrink_to_fit();
  }
  WatchForDisconnect(++exchange_number_);
  CallHandler(connection_.shared(), std::move(route_), std::move(exchange));
}

void Http1Session::WatchForDisconnect(uint64_t exchange_number) {
  if (connection_.stream().is_encrypted()) {
    if (connection_.input().size() == 0) Read();
    return;
  }
  connection_.stream().socket().async_wait(
      asio::ip::tcp::socket::wait_read,
      [this, connection = connection_.shared_from_this(), exchange_number](
          beast::error_code error) {
        if (error || exchange_number_ != exchange_number) return;
        char byte = 0;
        const int socket = connection->stream().socket().native_handle();
        if (::recv(socket, &byte, 1, MSG_PEEK | MSG_DONTWAIT) <= 0) OnClientDisconnect();
      });
}

void Http1Session::OnClientDisconnect() {
  if (const auto exchange = exchange_.lock()) exchange->OnClientDisconnect();
}

void Http1Session::Send(std::string bytes, bool last, bool keep_alive) {
  if (last) {
    answer_complete_ = true;
    keep_alive_ = keep_alive;
  }
  connection_.Write(std::move(bytes));
}

void Http1Session::OnWriteBegins() {
  if (phase_ == Phase::kAnswer) connection_.Arm(shared().options.write_timeout);
}

void Http1Session::OnWritten(size_t bytes, bool all) {
  unsent_.Remove(bytes);
  if (!all) return;
  if (phase_ == Phase::kAnswer) connection_.Disarm();
  if (!answer_complete_) return;
  answer_complete_ = false;
  ++exchange_number_;  // ends WatchForDisconnect of this exchange
  if (!keep_alive_) return connection_.Linger(HttpConnection::kLingerTime);
  NextRequest(shared().options.idle_timeout);
}

void Http1Session::OnTimeout() {
  if (phase_ == Phase::kAnswer) return connection_.Close();
  timed_out_ = true;
  beast::error_code ignored;
  connection_.stream().socket().cancel(ignored);  // OnRead is called next and answers
}

void Http1Session::OnClosed() {
  OnClientDisconnect();
}

}  // namespace baton
