#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>
#include <unordered_map>

#include "common/base/clock.h"
#include "common/http/flood_budget.h"
#include "common/http/frame_scanner.h"
#include "common/rpc/header_meter.h"
#include "common/rpc/remote_client.h"
#include "common/rpc/stranger_load.h"
#include "common/rpc/window_updates.h"

namespace baton {

// Decides which bytes of a client reach gRPC, which bounds neither the headers that it is reading
// nor the frames that bring nothing. Knows no sockets, threads or clock. A client that has proven
// nothing has small budgets and a share of the port's StrangerLoad; one that has proven itself has
// large budgets. The size of one header is bounded for both. Not thread-safe.
class FrameGate final {
 public:
  // The faults of clients, as logs and GOAWAY frames state them.
  static constexpr std::string_view kNotHttp2 = "its bytes are not HTTP/2";
  static constexpr std::string_view kBreaksProtocol = "it breaks the protocol HTTP/2";
  static constexpr std::string_view kHeaderTooLarge =
      "a header is malformed, or has more than 64 KiB or 7 frames";
  static constexpr std::string_view kTooManyRequests =
      "it sent too many requests before one was accepted";
  static constexpr std::string_view kTooManyResets = "too many requests were reset";
  static constexpr std::string_view kTooManyFrames = "it sent too many frames without use";
  static constexpr std::string_view kTooMuchMemory =
      "the clients of this port that have proven nothing hold too much memory, this one the most";

  // `client`, `strangers` outlive the gate. `end` ends the connection when the port's strangers
  // hold too much.
  FrameGate(const RemoteClient& client, StrangerLoad& strangers, std::function<void()> end);

  // Examines bytes of the client. Returns how many of them may be passed on: all, unless the
  // connection must end, and failure() says why.
  size_t FromClient(std::string_view bytes, Time now);
  // Observes bytes of the server: ends of requests, and what the client will answer.
  void FromServer(std::string_view bytes, Time now);

  // The client's fault, one of the texts above; else empty.
  std::string_view failure() const { return failure_; }
  // The client has sent the preface of HTTP/2 and its settings.
  bool greeted() const { return greeted_; }
  // The bytes that were last examined only update windows, and may wait for the next ones of the
  // same direction. To be called once for them.
  bool client_bytes_may_wait(size_t bytes) {
    return client_updates_.MayWait(bytes, from_client_.at_border());
  }
  bool server_bytes_may_wait(size_t bytes) {
    return server_updates_.MayWait(bytes, from_server_.at_border());
  }
  // The server's bytes have ended at the border of two frames.
  bool at_server_border() const { return from_server_.at_border(); }

 private:
  struct ClientFrames;
  struct ServerFrames;

  bool Fail(std::string_view failure);
  // The client has proven itself since the last call: large budgets from now on.
  void SettleProof();
  bool is_stranger() const { return share_.has_value(); }
  bool TakePreface(std::string_view& bytes);
  bool OnFrame(const FrameHead& head);
  bool OnHeaders(const FrameHead& head);
  bool OnData(const FrameHead& head);
  bool OnHeaderPayload(const FrameHead& head, std::string_view part, bool last);
  bool OnReset(const FrameHead& head);
  // A frame that brings nothing.
  bool OnIdleFrame();
  void Hold(uint32_t stream, size_t bytes);
  void Release(uint32_t stream);

  const RemoteClient& client_;
  StrangerLoad& strangers_;
  std::string_view failure_;
  Time now_;

  size_t preface_bytes_ = 0;  // of the preface, that have arrived
  bool greeted_ = false;
  FrameScanner from_client_;
  FrameScanner from_server_;
  WindowUpdates client_updates_;
  WindowUpdates server_updates_;

  HeaderMeter headers_;
  uint32_t last_stream_ = 0;       // that the client has opened
  uint32_t header_stream_ = 0;     // whose header has begun and not ended; 0: none
  uint32_t priority_left_ = 0;     // bytes of the frame before its part of the header
  int continuations_ = 0;          // frames of that header after the first
  uint32_t expected_answers_ = 0;  // updates of windows and pings, for data that was sent

  uint32_t reset_code_ = 0;  // of a RST_STREAM frame of the server, as far as it has been read

  // Budgets of the present state. Of a stranger also those for requests and for small data.
  FloodBudget resets_;
  FloodBudget idle_frames_;
  FloodBudget requests_;
  FloodBudget small_data_;
  std::optional<StrangerLoad::Share> share_;      // absent: the client has proven itself
  std::unordered_map<uint32_t, size_t> streams_;  // of a stranger: the bytes of open requests
};

}  // namespace baton
