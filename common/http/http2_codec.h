#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "common/base/clock.h"
#include "common/http/flood_budget.h"
#include "common/http/frame_scanner.h"
#include "common/http/http2_events.h"
#include "common/http/http_answer_writer.h"

struct nghttp2_session;

namespace baton {

// The frames of one connection of HTTP/2 (RFC 9113), without sockets, threads or a clock. nghttp2
// parses them, compresses the headers, keeps the windows, and refuses malformed requests. This
// class bounds what nghttp2 accepts from a client: the frames that cost work and bring no request
// (CVE-2019-9511 and its kin), reset requests (CVE-2023-44487), endless headers (CVE-2024-27316).
class Http2Codec final {
 public:
  // The most requests of one connection that are in progress at a time.
  static constexpr uint32_t kMaxStreams = 100;

  // `events` outlives the codec. A header whose lines have more bytes, each counted with 32 more
  // (RFC 9113, section 6.5.2), is reported as too large.
  Http2Codec(Http2Events& events, size_t max_header_bytes);
  ~Http2Codec();

  // Handles bytes of the client. When they break the protocol or a limit, the connection ends after
  // the bytes that Produce still gives, and failure() says why.
  void Receive(std::string_view bytes, Time now);
  // Appends bytes for the client to `out`, until it has `max` or more.
  void Produce(std::string& out, size_t max);
  // Nothing more is to be received or produced.
  bool is_over() const;
  // Why the connection ends, if it is the client's fault: "resets", "frames", "header", "protocol",
  // "time"; else empty.
  std::string_view failure() const { return failure_; }
  // Frames that wait to be produced, without those of answers.
  size_t waiting_frames() const;

  // Sends the head of an answer, and then what TakeAnswer gives, if the answer has a body.
  void Answer(int32_t stream, const HttpAnswerHead& head, bool has_body);
  // TakeAnswer has more for a stream for which it gave nothing.
  void Resume(int32_t stream);
  // Sends the interim answer 100 (RFC 9110, section 10.1.1).
  void Continue(int32_t stream);
  // Resets a stream: its answer failed, or the client reads it too slowly.
  void Reset(int32_t stream, HttpAbort why);

  // Takes no further streams. The connection is over when the present ones have ended.
  void Drain();
  // Ends the connection at once, with no fault of the client.
  void Terminate();
  // Ends the connection at once, because the client exceeds a limit.
  void Fail(std::string_view failure);

 private:
  friend struct Http2Callbacks;

  struct FreeSession {
    void operator()(nghttp2_session* session) const;
  };

  struct FrameCounter {
    Http2Codec& codec;
    bool OnFrame(const FrameHead& head);
    bool OnPayload(const FrameHead&, std::string_view, bool) { return true; }
  };

  // The connection ends with `failure` when the budget is used up.
  void Charge(FloodBudget& budget, std::string_view failure, double cost = 1);
  void CountFrame(const FrameHead& head);
  // Counts a line of a header. False when the line must be left out.
  bool CountHeader(size_t bytes);
  bool header_is_too_large() const { return header_bytes_ > max_header_bytes_; }
  void SendFailure();

  Http2Events& events_;
  const size_t max_header_bytes_;
  std::unique_ptr<nghttp2_session, FreeSession> session_;
  size_t preface_left_ = 24;  // bytes before the first frame (RFC 9113, section 3.4)
  FrameScanner frames_;
  Time now_;
  FloodBudget resets_;
  FloodBudget idle_frames_;
  FloodBudget small_data_;
  size_t header_bytes_ = 0;   // of the header that is being received
  int continuations_ = 0;     // frames of that header after the first
  int expected_updates_ = 0;  // of windows, for parts of answers that were sent
  std::string_view failure_;
  bool broken_ = false;  // nghttp2 cannot go on
};

}  // namespace baton
