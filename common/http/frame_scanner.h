#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace baton {

// The head of a frame of HTTP/2 (RFC 9113, section 4.1).
struct FrameHead {
  enum Type : uint8_t {
    kData = 0,
    kHeaders = 1,
    kPriority = 2,
    kResetStream = 3,
    kSettings = 4,
    kPushPromise = 5,
    kPing = 6,
    kGoAway = 7,
    kWindowUpdate = 8,
    kContinuation = 9,
  };
  enum Flag : uint8_t { kEndStream = 0x1, kEndHeaders = 0x4, kPadded = 0x8, kHasPriority = 0x20 };

  uint32_t length = 0;  // of the payload
  uint8_t type = 0;
  uint8_t flags = 0;
  uint32_t stream = 0;

  bool has(Flag flag) const { return (flags & flag) != 0; }
};

// Finds the frames in a sequence of bytes that arrives in pieces. Keeps no payload. Not
// thread-safe.
class FrameScanner final {
 public:
  // Calls visitor.OnFrame(head) when a head is complete, and then visitor.OnPayload(head, part,
  // last) for its payload, once with `last` (also when the payload is empty). Both return false to
  // end the scan. Returns the number of bytes that were taken before that.
  template <class Visitor>
  size_t Scan(std::string_view bytes, Visitor& visitor) {
    const size_t size = bytes.size();
    while (!bytes.empty()) {
      if (head_bytes_ < kHeadBytes) {
        TakeHead(bytes);
        if (head_bytes_ < kHeadBytes) break;
        if (!visitor.OnFrame(head_)) return size - bytes.size();
        if (payload_left_ > 0) continue;
      }
      const std::string_view part = bytes.substr(0, payload_left_);
      const bool last = part.size() == payload_left_;
      if (!visitor.OnPayload(head_, part, last)) return size - bytes.size();
      payload_left_ -= static_cast<uint32_t>(part.size());
      bytes.remove_prefix(part.size());
      if (last) head_bytes_ = 0;
    }
    return size;
  }

  // True between two frames.
  bool at_border() const { return head_bytes_ == 0; }

 private:
  static constexpr size_t kHeadBytes = 9;

  void TakeHead(std::string_view& bytes) {
    const size_t taken = std::min(bytes.size(), kHeadBytes - head_bytes_);
    std::copy_n(bytes.data(), taken, reinterpret_cast<char*>(raw_) + head_bytes_);
    head_bytes_ += taken;
    bytes.remove_prefix(taken);
    if (head_bytes_ < kHeadBytes) return;
    head_.length = uint32_t{raw_[0]} << 16 | uint32_t{raw_[1]} << 8 | raw_[2];
    head_.type = raw_[3];
    head_.flags = raw_[4];
    // The first bit is reserved.
    head_.stream = (uint32_t{raw_[5]} & 0x7f) << 24 | uint32_t{raw_[6]} << 16 |
                   uint32_t{raw_[7]} << 8 | raw_[8];
    payload_left_ = head_.length;
  }

  uint8_t raw_[kHeadBytes] = {};
  size_t head_bytes_ = 0;  // the bytes of the head that have arrived
  FrameHead head_;
  uint32_t payload_left_ = 0;
};

}  // namespace baton
