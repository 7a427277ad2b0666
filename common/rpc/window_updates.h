#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "common/http/frame_scanner.h"

namespace baton {

// Finds pieces of one direction of a connection of HTTP/2 that may wait for the next piece: those
// that do nothing but update windows (RFC 9113, section 6.9), by little. gRPC sends such a piece
// after each message that it has read. Not thread-safe.
class WindowUpdates final {
 public:
  // The most that the peer's windows may lack while pieces wait. Windows have 64 KiB or more,
  // otherwise no piece waits.
  static constexpr uint64_t kMaxWaiting = 4096;
  static constexpr size_t kMaxWaitingBytes = 512;  // of the pieces themselves

  // A piece begins; `at_border`: with a new frame.
  void Begin(bool at_border);
  void OnFrame(const FrameHead& head);
  void OnPayload(const FrameHead& head, std::string_view part);
  // The piece has ended, after `bytes`; `at_border`: with the end of a frame. False: it must be
  // passed on, and before it those that wait.
  bool MayWait(size_t bytes, bool at_border);

 private:
  void OnSettings(std::string_view part);

  bool only_updates_ = false;   // the piece, so far
  uint64_t piece_window_ = 0;   // what its updates add to the peer's windows
  uint64_t value_ = 0;          // the last bytes of a payload
  size_t payload_bytes_ = 0;    // of the frame, that have been seen
  bool small_windows_ = false;  // the sender of the updates has asked for windows below 64 KiB
  uint64_t waiting_window_ = 0;
  size_t waiting_bytes_ = 0;
};

}  // namespace baton
