#include "common/http/http2_codec.h"

#include <nghttp2/nghttp2.h>

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include <absl/strings/ascii.h>

#include "common/base/check.h"

namespace baton {
namespace {

// Requests that a client resets, or that break the protocol: a client may cancel all its requests
// at once, but not for each of thousands of requests a second.
constexpr double kResetBurst = 200;
constexpr double kResetsPerSecond = 50;
// What a header that is too large costs of that budget: as much work as ten requests.
constexpr double kLargeHeaderResets = 10;
// Frames that bring no request, no part of one and no room for an answer.
constexpr double kIdleFrameBurst = 500;
constexpr double kIdleFramesPerSecond = 50;
// Frames with so little of a body that they cost more than they bring. A client writes its body in
// larger parts, but may do so as it makes them.
constexpr size_t kSmallDataBytes = 64;
constexpr double kSmallDataBurst = 2000;
constexpr double kSmallDataPerSecond = 500;
// A client updates its windows while it reads an answer: so often for each frame with a part of an
// answer, and at most as often as for this number of frames it has read before. Other updates bring
// nothing.
constexpr int kUpdatesPerDataFrame = 4;
constexpr int kMaxExpectedUpdates = 4000;
constexpr int kMaxContinuations = 6;  // each frame has up to 16 KiB of a header
// A header of this multiple of the limit is not answered with 431: the connection ends.
constexpr size_t kHopelessHeader = 4;
constexpr size_t kHeaderLineBytes = 32;  // of each line, beside its name and value
constexpr uint32_t kStreamWindowBytes = 256 << 10;
constexpr int32_t kConnectionWindowBytes = 1 << 20;

std::string_view View(const uint8_t* bytes, size_t size) {
  return {reinterpret_cast<const char*>(bytes), size};
}

// The pointers must stay valid until nghttp2 has copied the line.
nghttp2_nv Line(const std::string& name, const std::string& value) {
  // nghttp2's type is not const, but it only reads.
  const auto bytes = [](const std::string& text) {
    return const_cast<uint8_t*>(reinterpret_cast<const uint8_t*>(text.data()));
  };
  return {bytes(name), bytes(value), name.size(), value.size(), NGHTTP2_NV_FLAG_NONE};
}

}  // namespace

// The functions that nghttp2 calls. An exception must not pass through its C code.
struct Http2Callbacks {
  static Http2Codec& Codec(void* self) { return *static_cast<Http2Codec*>(self); }

  template <class Work>
  static int Guarded(void* self, const Work& work) {
    try {
      work(Codec(self));
      return 0;
    } catch (...) {
      return NGHTTP2_ERR_CALLBACK_FAILURE;
    }
  }

  static bool IsRequest(const nghttp2_frame& frame) {
    return frame.hd.type == NGHTTP2_HEADERS && frame.headers.cat == NGHTTP2_HCAT_REQUEST;
  }

  static int OnBeginHeaders(nghttp2_session* session, const nghttp2_frame* frame, void* self) {
    return Guarded(self, [session, frame](Http2Codec& codec) {
      codec.header_bytes_ = 0;
      if (!IsRequest(*frame)) return;
      // All streams have an equal share of the connection, whatever the client asks for.
      const nghttp2_extpri equal = {NGHTTP2_EXTPRI_DEFAULT_URGENCY, /*inc=*/1};
      nghttp2_session_change_extpri_stream_priority(
          session, frame->hd.stream_id, &equal, /*ignore_client_signal=*/1);
      codec.events_.OnRequestBegins(frame->hd.stream_id);
    });
  }

  static int OnHeader(nghttp2_session*,
                      const nghttp2_frame* frame,
                      const uint8_t* name,
                      size_t name_size,
                      const uint8_t* value,
                      size_t value_size,
                      uint8_t,
                      void* self) {
    return Guarded(self, [=](Http2Codec& codec) {
      if (!codec.CountHeader(name_size + value_size) || !IsRequest(*frame)) return;
      codec.events_.OnHeader(frame->hd.stream_id, View(name, name_size), View(value, value_size));
    });
  }

  // Without this function nghttp2 would leave the line out and serve the request.
  static int OnInvalidHeader(nghttp2_session*,
                             const nghttp2_frame*,
                             const uint8_t*,
                             size_t,
                             const uint8_t*,
                             size_t,
                             uint8_t,
                             void*) {
    return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
  }

  static int OnFrame(nghttp2_session*, const nghttp2_frame* frame, void* self) {
    return Guarded(self, [frame](Http2Codec& codec) {
      const int32_t stream = frame->hd.stream_id;
      const bool ends = (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) != 0;
      const bool too_large = codec.header_is_too_large();
      if (IsRequest(*frame)) codec.events_.OnHeaderEnds(stream, too_large);
      if (too_large && frame->hd.type == NGHTTP2_HEADERS) {
        codec.Charge(codec.resets_, "resets", kLargeHeaderResets);
      }
      if (frame->hd.type != NGHTTP2_HEADERS && frame->hd.type != NGHTTP2_DATA) return;
      if (ends) return codec.events_.OnRequestEnds(stream);
      const bool padding_only = frame->hd.type == NGHTTP2_DATA && frame->hd.length > 0 &&
                                frame->hd.length <= frame->data.padlen;
      if (padding_only) codec.Charge(codec.idle_frames_, "frames");
    });
  }

  // nghttp2 resets the stream, or refuses it.
  static int OnInvalidFrame(nghttp2_session*, const nghttp2_frame*, int, void* self) {
    return Guarded(self, [](Http2Codec& codec) { codec.Charge(codec.resets_, "resets"); });
  }

  static int OnData(
      nghttp2_session*, uint8_t, int32_t stream, const uint8_t* bytes, size_t size, void* self) {
    return Guarded(self,
                   [=](Http2Codec& codec) { codec.events_.OnBody(stream, View(bytes, size)); });
  }

  static int OnStreamClose(nghttp2_session*, int32_t stream, uint32_t, void* self) {
    return Guarded(self, [stream](Http2Codec& codec) { codec.events_.OnStreamClosed(stream); });
  }

  static int OnFrameSent(nghttp2_session* session, const nghttp2_frame* frame, void* self) {
    return Guarded(self, [=](Http2Codec& codec) {
      const int32_t stream = frame->hd.stream_id;
      if (frame->hd.type == NGHTTP2_DATA) {
        codec.expected_updates_ =
            std::min(codec.expected_updates_ + kUpdatesPerDataFrame, kMaxExpectedUpdates);
      }
      if (frame->hd.type == NGHTTP2_GOAWAY) {
        const bool fault = frame->goaway.error_code != NGHTTP2_NO_ERROR;
        if (fault && codec.failure_.empty()) codec.failure_ = "protocol";
      }
      if (frame->hd.type != NGHTTP2_HEADERS && frame->hd.type != NGHTTP2_DATA) return;
      if ((frame->hd.flags & NGHTTP2_FLAG_END_STREAM) == 0) return;
      // The answer is complete before the request: its rest is not wanted.
      if (nghttp2_session_get_stream_remote_close(session, stream) == 0) {
        nghttp2_submit_rst_stream(session, NGHTTP2_FLAG_NONE, stream, NGHTTP2_NO_ERROR);
      }
    });
  }

  static ssize_t ReadAnswer(nghttp2_session*,
                            int32_t stream,
                            uint8_t* buffer,
                            size_t size,
                            uint32_t* flags,
                            nghttp2_data_source*,
                            void* self) {
    size_t taken = 0;
    bool last = false;
    const int failed = Guarded(self, [&](Http2Codec& codec) {
      taken = codec.events_.TakeAnswer(stream, {buffer, size}, last);
    });
    if (failed != 0) return failed;
    if (last) *flags |= NGHTTP2_DATA_FLAG_EOF;
    if (taken == 0 && !last) return NGHTTP2_ERR_DEFERRED;
    return static_cast<ssize_t>(taken);
  }

  static nghttp2_session* NewSession(Http2Codec& codec) {
    nghttp2_session_callbacks* functions = nullptr;
    nghttp2_option* options = nullptr;
    nghttp2_session* session = nullptr;
    BATON_CHECK(nghttp2_session_callbacks_new(&functions) == 0, "no memory for HTTP/2");
    BATON_CHECK(nghttp2_option_new(&options) == 0, "no memory for HTTP/2");
    nghttp2_session_callbacks_set_on_begin_headers_callback(functions, &OnBeginHeaders);
    nghttp2_session_callbacks_set_on_header_callback(functions, &OnHeader);
    nghttp2_session_callbacks_set_on_invalid_header_callback(functions, &OnInvalidHeader);
    nghttp2_session_callbacks_set_on_frame_recv_callback(functions, &OnFrame);
    nghttp2_session_callbacks_set_on_invalid_frame_recv_callback(functions, &OnInvalidFrame);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(functions, &OnData);
    nghttp2_session_callbacks_set_on_stream_close_callback(functions, &OnStreamClose);
    nghttp2_session_callbacks_set_on_frame_send_callback(functions, &OnFrameSent);
    nghttp2_option_set_no_closed_streams(options, 1);
    const int failed = nghttp2_session_server_new2(&session, functions, &codec, options);
    nghttp2_option_del(options);
    nghttp2_session_callbacks_del(functions);
    BATON_CHECK(failed == 0, "no memory for HTTP/2");
    return session;
  }
};

void Http2Codec::FreeSession::operator()(nghttp2_session* session) const {
  nghttp2_session_del(session);
}

Http2Codec::Http2Codec(Http2Events& events, size_t max_header_bytes)
    : events_(events),
      max_header_bytes_(max_header_bytes),
      session_(Http2Callbacks::NewSession(*this)),
      resets_(kResetBurst, kResetsPerSecond),
      idle_frames_(kIdleFrameBurst, kIdleFramesPerSecond),
      small_data_(kSmallDataBurst, kSmallDataPerSecond) {
  const std::array<nghttp2_settings_entry, 4> settings = {{
      {NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, kMaxStreams},
      {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, kStreamWindowBytes},
      {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, static_cast<uint32_t>(max_header_bytes)},
      {NGHTTP2_SETTINGS_NO_RFC7540_PRIORITIES, 1},
  }};
  nghttp2_submit_settings(session_.get(), NGHTTP2_FLAG_NONE, settings.data(), settings.size());
  nghttp2_session_set_local_window_size(
      session_.get(), NGHTTP2_FLAG_NONE, 0, kConnectionWindowBytes);
}

Http2Codec::~Http2Codec() = default;

void Http2Codec::Receive(std::string_view bytes, Time now) {
  now_ = now;
  if (broken_ || !failure_.empty()) return;
  // nghttp2 itself does not report all frames that it ignores.
  const size_t preface = std::min(bytes.size(), preface_left_);
  preface_left_ -= preface;
  FrameCounter counter{*this};
  bytes = bytes.substr(0, preface + frames_.Scan(bytes.substr(preface), counter));
  const auto* data = reinterpret_cast<const uint8_t*>(bytes.data());
  const ssize_t used = nghttp2_session_mem_recv(session_.get(), data, bytes.size());
  if (used < 0 && failure_.empty()) {
    failure_ = used == NGHTTP2_ERR_FLOODED ? "frames" : "protocol";
  }
  if (!failure_.empty()) SendFailure();
}

void Http2Codec::SendFailure() {
  nghttp2_session_terminate_session(
      session_.get(), failure_ == "protocol" ? NGHTTP2_PROTOCOL_ERROR : NGHTTP2_ENHANCE_YOUR_CALM);
}

void Http2Codec::Produce(std::string& out, size_t max) {
  while (!broken_ && out.size() < max && nghttp2_session_want_write(session_.get()) != 0) {
    const uint8_t* data = nullptr;
    const ssize_t size = nghttp2_session_mem_send(session_.get(), &data);
    broken_ = size < 0;
    if (size <= 0) break;
    out.append(View(data, static_cast<size_t>(size)));
  }
}

bool Http2Codec::is_over() const {
  return broken_ || (nghttp2_session_want_read(session_.get()) == 0 &&
                     nghttp2_session_want_write(session_.get()) == 0);
}

size_t Http2Codec::waiting_frames() const {
  return nghttp2_session_get_outbound_queue_size(session_.get());
}

void Http2Codec::Charge(FloodBudget& budget, std::string_view failure, double cost) {
  if (!budget.Take(now_, cost) && failure_.empty()) failure_ = failure;
}

bool Http2Codec::FrameCounter::OnFrame(const FrameHead& head) {
  codec.CountFrame(head);
  return codec.failure_.empty();
}

void Http2Codec::CountFrame(const FrameHead& head) {
  switch (head.type) {
    case FrameHead::kHeaders:
      continuations_ = 0;
      return;
    case FrameHead::kContinuation:
      if (++continuations_ > kMaxContinuations && failure_.empty()) failure_ = "header";
      return;
    case FrameHead::kData:
      if (head.has(FrameHead::kEndStream)) return;
      if (head.length == 0) Charge(idle_frames_, "frames");
      if (head.length < kSmallDataBytes) Charge(small_data_, "frames");
      return;
    case FrameHead::kWindowUpdate:
      if (expected_updates_ > 0) {
        --expected_updates_;
      } else {
        Charge(idle_frames_, "frames");
      }
      return;
    case FrameHead::kResetStream:
      Charge(resets_, "resets");
      return;
    default:
      Charge(idle_frames_, "frames");
  }
}

bool Http2Codec::CountHeader(size_t bytes) {
  header_bytes_ += bytes + kHeaderLineBytes;
  if (header_bytes_ > kHopelessHeader * max_header_bytes_ && failure_.empty()) failure_ = "header";
  return !header_is_too_large();
}

void Http2Codec::Answer(int32_t stream, const HttpAnswerHead& head, bool has_body) {
  std::vector<std::pair<std::string, std::string>> lines;
  lines.reserve(head.headers.size() + 2);
  lines.emplace_back(":status", std::to_string(head.status));
  for (const auto& [name, value] : head.headers) {
    lines.emplace_back(absl::AsciiStrToLower(name), value);
  }
  if (head.body_bytes.has_value()) {
    lines.emplace_back("content-length", std::to_string(*head.body_bytes));
  }
  std::vector<nghttp2_nv> views;
  views.reserve(lines.size());
  for (const auto& [name, value] : lines) views.push_back(Line(name, value));
  const nghttp2_data_provider body = {{.ptr = nullptr}, &Http2Callbacks::ReadAnswer};
  // Fails only for a stream that is closed, or without memory, which breaks Produce, too.
  (void)nghttp2_submit_response(
      session_.get(), stream, views.data(), views.size(), has_body ? &body : nullptr);
}

void Http2Codec::Resume(int32_t stream) {
  nghttp2_session_resume_data(session_.get(), stream);
}

void Http2Codec::Continue(int32_t stream) {
  static const std::string name = ":status";
  static const std::string value = "100";
  const nghttp2_nv line = Line(name, value);
  nghttp2_submit_headers(session_.get(), NGHTTP2_FLAG_NONE, stream, nullptr, &line, 1, nullptr);
}

void Http2Codec::Reset(int32_t stream, HttpAbort why) {
  nghttp2_submit_rst_stream(
      session_.get(),
      NGHTTP2_FLAG_NONE,
      stream,
      why == HttpAbort::kReadTooSlowly ? NGHTTP2_ENHANCE_YOUR_CALM : NGHTTP2_INTERNAL_ERROR);
}

void Http2Codec::Drain() {
  nghttp2_submit_goaway(session_.get(),
                        NGHTTP2_FLAG_NONE,
                        nghttp2_session_get_last_proc_stream_id(session_.get()),
                        NGHTTP2_NO_ERROR,
                        nullptr,
                        0);
}

void Http2Codec::Terminate() {
  nghttp2_session_terminate_session(session_.get(), NGHTTP2_NO_ERROR);
}

void Http2Codec::Fail(std::string_view failure) {
  if (!failure_.empty()) return;
  failure_ = failure;
  SendFailure();
}

}  // namespace baton
