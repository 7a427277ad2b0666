#include "common/http/http2_session.h"

#include <algorithm>
#include <utility>

#include <absl/strings/numbers.h>

#include "common/http/http2_answer.h"
#include "common/http/http_exchange.h"
#include "common/http/http_serving.h"
#include "common/log/log.h"

namespace baton {
namespace {

constexpr size_t kReadBytes = 16 << 10;
constexpr size_t kMaxOutputBytes = 64 << 10;  // of one write, roughly
// A client that sends, but does not read, is not read from while more frames wait for it.
constexpr size_t kMaxWaitingFrames = 500;
constexpr Duration kStopTime = std::chrono::milliseconds(500);
// The part of the bytes of waiting bodies that one connection may hold.
constexpr size_t kConnectionsPerBodies = 4;

const Logger kLog("http");

size_t MaxWaitingBytes(const HttpServerOptions& options) {
  return std::max(options.max_body_bytes, options.max_waiting_body_bytes / kConnectionsPerBodies);
}

}  // namespace

Http2Session::Http2Session(HttpConnection& connection)
    : connection_(connection),
      bodies_(MaxWaitingBytes(connection.options()), &connection.shared()->waiting_bodies),
      codec_(*this, connection.options().max_header_bytes) {}

Http2Session::~Http2Session() = default;

void Http2Session::Start() {
  idle_deadline_ = SteadyClock().Now() + shared().options.header_timeout;
  Await(idle_deadline_);
  Receive();
}

void Http2Session::OnRead(boost::system::error_code error) {
  if (error) return connection_.Close();
  Receive();
}

void Http2Session::Receive() {
  auto& input = connection_.input();
  const auto bytes = input.cdata();
  codec_.Receive({static_cast<const char*>(bytes.data()), bytes.size()}, SteadyClock().Now());
  input.consume(bytes.size());
  HandleChanges();
  Flush();
  Read();
}

void Http2Session::Read() {
  if (ended_ || stopping_ || codec_.is_over() || !codec_.failure().empty()) return;
  read_is_paused_ = connection_.is_writing() && codec_.waiting_frames() > kMaxWaitingFrames;
  if (!read_is_paused_) connection_.Read(kReadBytes);
}

Http2Stream* Http2Session::Find(int32_t id) {
  const auto found = streams_.find(id);
  return found == streams_.end() ? nullptr : found->second.get();
}

// ---- what the codec reports

void Http2Session::OnRequestBegins(int32_t id) {
  idle_deadline_ = kNever;
  auto stream = std::make_unique<Http2Stream>(shared().unsent_bytes);
  stream->body_share = ByteBudget::Share(bodies_);
  stream->deadline = SteadyClock().Now() + shared().options.header_timeout;
  Await(stream->deadline);
  streams_[id] = std::move(stream);
}

void Http2Session::OnHeader(int32_t id, std::string_view name, std::string_view value) {
  Http2Stream* const stream = Find(id);
  if (stream == nullptr) return;
  if (name == ":method") {
    stream->request.method = value;
  } else if (name == ":path") {
    SetTarget(value, stream->request);
  } else if (name == ":authority") {
    stream->authority = value;
  } else if (!name.starts_with(':')) {
    stream->request.headers[std::string(name)] = value;
  }
}

void Http2Session::OnHeaderEnds(int32_t id, bool too_large) {
  Http2Stream* const stream = Find(id);
  if (stream == nullptr) return;
  stream->head_complete = true;
  if (too_large) stream->refusal = HeaderTooLarge(shared().options.max_header_bytes);
  changed_.push_back(id);
}

void Http2Session::OnBody(int32_t id, std::string_view bytes) {
  using Phase = Http2Stream::Phase;
  Http2Stream* const stream = Find(id);
  if (stream == nullptr || stream->phase == Phase::kAnswer || stream->refusal.status != 0) return;
  const HttpServerOptions& options = shared().options;
  const size_t limit =
      stream->phase == Phase::kHead ? options.max_body_bytes : stream->max_body_bytes;
  const size_t size = stream->request.body.size() + bytes.size();
  if (size > limit) {
    stream->refusal = BodyTooLarge(limit);
  } else if (!stream->body_share.GrowTo(size)) {
    stream->refusal =
        TooManyWaitingBodies(fmt::format("{} bytes in all, or {} bytes of one connection",
                                         options.max_waiting_body_bytes,
                                         MaxWaitingBytes(options)));
  } else {
    stream->request.body.append(bytes);
    return;
  }
  std::string().swap(stream->request.body);
  changed_.push_back(id);
}

void Http2Session::OnRequestEnds(int32_t id) {
  Http2Stream* const stream = Find(id);
  if (stream == nullptr) return;
  stream->body_complete = true;
  changed_.push_back(id);
}

void Http2Session::OnStreamClosed(int32_t id) {
  const auto found = streams_.find(id);
  if (found == streams_.end()) return;
  if (slot_owner_ == id) slot_owner_ = 0;
  closed_.push_back(std::move(found->second));
  streams_.erase(found);
}

size_t Http2Session::TakeAnswer(int32_t id, std::span<uint8_t> into, bool& last) {
  Http2Stream* const stream = Find(id);
  last = stream == nullptr;
  if (stream == nullptr) return 0;
  return stream->Take(into, last, SteadyClock().Now(), shared().options.write_timeout);
}

// ---- requests

void Http2Session::HandleChanges() {
  NoteFailure();
  for (const int32_t id : std::exchange(changed_, {})) {
    Http2Stream* const stream = Find(id);
    if (stream != nullptr && codec_.failure().empty()) Advance(id, *stream);
  }
  for (const auto& stream : std::exchange(closed_, {})) Drop(*stream);
  if (!streams_.empty() || idle_deadline_ != kNever) return;
  idle_deadline_ = SteadyClock().Now() + shared().options.idle_timeout;
  Await(idle_deadline_);
}

void Http2Session::NoteFailure() {
  if (failure_is_noted_ || codec_.failure().empty()) return;
  failure_is_noted_ = true;
  shared().probe.OnHttp2Failure(codec_.failure());
  kLog.Debug(
      "{}: the HTTP/2 connection ends, because the client exceeds a limit or breaks the "
      "protocol: {}",
      connection_.slot().address(),
      codec_.failure());
}

void Http2Session::Advance(int32_t id, Http2Stream& stream) {
  using Phase = Http2Stream::Phase;
  if (stream.phase == Phase::kHead && (!stream.head_complete || !OnHead(id, stream))) return;
  if (stream.phase != Phase::kBody) return;
  if (stream.refusal.status != 0) return Refuse(id, stream, stream.refusal);
  if (!stream.body_complete) return;
  HttpRoutes::Route route = std::move(stream.route);
  CallHandler(connection_.shared(), std::move(route), MakeExchange(id, stream));
}

bool Http2Session::OnHead(int32_t id, Http2Stream& stream) {
  HttpRequest& request = stream.request;
  stream.phase = Http2Stream::Phase::kBody;
  request.client = connection_.slot().address();
  request.certificate = connection_.stream().certificate_name();
  request.id = RequestIdOf(std::string(request.header("x-request-id")));
  const bool last = connection_.slot().reserved() || shared().draining;
  if (last && !std::exchange(draining_, true)) codec_.Drain();
  if (stream.refusal.status != 0) return true;
  // RFC 9113, section 8.3.1: a request must not name two hosts.
  if (!stream.authority.empty()) {
    const auto [host, is_new] = request.headers.try_emplace("host", stream.authority);
    if (host->second != stream.authority) {
      stream.refusal = {400, "the header \"host\" is not the same as \":authority\""};
    }
  }
  if (stream.refusal.status == 0) stream.refusal = CheckHostName(request.header("host"));
  if (stream.refusal.status == 0) stream.refusal = CheckExpect(request);
  if (stream.refusal.status != 0) return true;
  uint64_t stated = 0;  // nghttp2 compares it with the body
  (void)absl::SimpleAtoi(std::string(request.header("content-length")), &stated);
  HttpAdmission admission = AdmitRequest(shared(), TakeSlot(id, stream), stated, request);
  stream.refusal = admission.refusal;
  stream.max_body_bytes = admission.max_body_bytes;
  if (request.body.size() > stream.max_body_bytes && stream.refusal.status == 0) {
    stream.refusal = BodyTooLarge(stream.max_body_bytes);
  }
  if (stream.refusal.status != 0) return true;
  if (admission.proven) connection_.EndStranger();
  stream.route = std::move(admission.match.route);
  if (!stream.route.handler) {
    AnswerWithoutHandler(shared(), *MakeExchange(id, stream), admission.match);
    return false;
  }
  if (stream.body_complete) return true;
  stream.deadline = SteadyClock().Now() + shared().options.body_timeout;
  Await(stream.deadline);
  if (ExpectsContinue(request) && request.body.empty()) codec_.Continue(id);
  return true;
}

const ConnectionSlots::Slot& Http2Session::TakeSlot(int32_t id, Http2Stream& stream) {
  if (slot_owner_ == 0) {
    slot_owner_ = id;
    return connection_.slot();
  }
  stream.slot.emplace(shared().slots.Take(connection_.slot().address()));
  return *stream.slot;
}

std::shared_ptr<ConnectionExchange> Http2Session::MakeExchange(int32_t id, Http2Stream& stream) {
  stream.phase = Http2Stream::Phase::kAnswer;
  stream.deadline = kNever;
  auto writer =
      std::make_unique<Http2Answer>(connection_.shared_from_this(), *this, id, stream.unsent);
  auto exchange = std::make_shared<ConnectionExchange>(
      std::move(writer), std::move(stream.request), std::move(stream.body_share));
  stream.exchange = exchange;
  return exchange;
}

void Http2Session::Refuse(int32_t id, Http2Stream& stream, const HttpRefusal& refusal) {
  AnswerRefusal(shared(), *MakeExchange(id, stream), refusal);
}

// An exception of a callback must not keep the other requests of the connection from being told.
void Http2Session::Drop(Http2Stream& stream) {
  const auto exchange = stream.exchange.lock();
  if (exchange == nullptr) return;
  try {
    exchange->OnClientDisconnect();
  } catch (const std::exception& exception) {
    shared().probe.OnException();
    kLog.Error(
        "request {}: its end caused an exception: {}", exchange->request().id, exception.what());
  }
}

// ---- answers

void Http2Session::Send(int32_t id,
                        const std::optional<HttpAnswerHead>& head,
                        std::string bytes,
                        bool last) {
  Http2Stream* const stream = Find(id);
  if (stream == nullptr) return;  // the client has reset it
  stream->Append(std::move(bytes), last, SteadyClock().Now(), shared().options.write_timeout);
  if (head.has_value()) {
    codec_.Answer(id, *head, head->has_body && (!last || !stream->output.empty()));
  } else {
    codec_.Resume(id);
  }
  Await(stream->deadline);
  Flush();
}

void Http2Session::Abort(int32_t id, HttpAbort why) {
  Reset(id, why);
  Flush();
}

void Http2Session::Reset(int32_t id, HttpAbort why) {
  Http2Stream* const stream = Find(id);
  if (stream == nullptr) return;
  stream->output.clear();
  stream->taken_of_front = 0;
  stream->deadline = kNever;
  codec_.Reset(id, why);
}

void Http2Session::Flush() {
  if (ended_ || connection_.is_writing()) return;
  std::string out;
  codec_.Produce(out, kMaxOutputBytes);
  HandleChanges();
  if (!out.empty()) return connection_.Write(std::move(out));
  if (!codec_.is_over()) return;
  ended_ = true;
  if (stopping_) return connection_.Close();
  OnClosed();
  connection_.Linger(codec_.failure().empty() ? HttpConnection::kLingerTime
                                              : HttpConnection::kFloodLingerTime);
}

void Http2Session::OnWriteBegins() {
  write_deadline_ = SteadyClock().Now() + shared().options.write_timeout;
  Await(write_deadline_);
}

void Http2Session::OnWritten(size_t, bool all) {
  if (!all) return;
  write_deadline_ = kNever;
  Flush();
  if (read_is_paused_) Read();
}

// ---- time, and the end

void Http2Session::Await(Time deadline) {
  if (ended_ || deadline >= next_timeout_) return;
  next_timeout_ = deadline;
  connection_.Arm(std::max(deadline - SteadyClock().Now(), Duration(0)));
}

void Http2Session::OnTimeout() {
  const Time now = SteadyClock().Now();
  next_timeout_ = kNever;
  if (stopping_ || write_deadline_ <= now) return connection_.Close();
  std::vector<int32_t> late;
  for (const auto& [id, stream] : streams_) {
    if (stream->deadline <= now) late.push_back(id);
  }
  for (const int32_t id : late) OnStreamLate(id, *streams_.at(id));
  if (idle_deadline_ <= now) {
    idle_deadline_ = kNever;
    codec_.Terminate();
  }
  Flush();
  Time next = std::min(idle_deadline_, write_deadline_);
  for (const auto& [id, stream] : streams_) next = std::min(next, stream->deadline);
  Await(next);
}

void Http2Session::OnStreamLate(int32_t id, Http2Stream& stream) {
  using Phase = Http2Stream::Phase;
  if (stream.phase == Phase::kAnswer) return Reset(id, HttpAbort::kReadTooSlowly);
  if (stream.phase == Phase::kBody) {
    return Refuse(id, stream, {408, "the body did not come in time"});
  }
  // Frames of other streams cannot come before the header is complete.
  shared().probe.OnRefused(408);
  codec_.Fail("time");
}

void Http2Session::Drain() {
  if (std::exchange(draining_, true)) return;
  codec_.Drain();
  Flush();
}

void Http2Session::Stop() {
  stopping_ = true;
  codec_.Terminate();
  Await(SteadyClock().Now() + kStopTime);
  Flush();
}

void Http2Session::OnClosed() {
  ended_ = true;
  for (const auto& [id, stream] : std::exchange(streams_, {})) Drop(*stream);
}

}  // namespace baton
