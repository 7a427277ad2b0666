#include "common/rpc/window_updates.h"

namespace baton {
namespace {

constexpr size_t kSettingBytes = 6;          // RFC 9113, section 6.5.1
constexpr uint32_t kInitialWindowSize = 4;   // the setting
constexpr uint32_t kDefaultWindow = 65535;   // RFC 9113, section 6.9.2
constexpr uint32_t kIncrement = 0x7fffffff;  // the first bit is reserved

}  // namespace

void WindowUpdates::Begin(bool at_border) {
  only_updates_ = at_border;
  piece_window_ = 0;
}

void WindowUpdates::OnFrame(const FrameHead& head) {
  if (head.type != FrameHead::kWindowUpdate) only_updates_ = false;
  value_ = 0;
  payload_bytes_ = 0;
}

void WindowUpdates::OnPayload(const FrameHead& head, std::string_view part) {
  if (head.type == FrameHead::kSettings) return OnSettings(part);
  if (head.type != FrameHead::kWindowUpdate) return;
  for (const char byte : part) value_ = value_ << 8 | static_cast<uint8_t>(byte);
  payload_bytes_ += part.size();
  if (payload_bytes_ == head.length) piece_window_ += value_ & kIncrement;
}

void WindowUpdates::OnSettings(std::string_view part) {
  for (const char byte : part) {
    value_ = value_ << 8 | static_cast<uint8_t>(byte);
    if (++payload_bytes_ % kSettingBytes != 0) continue;
    const auto name = static_cast<uint16_t>(value_ >> 32);
    if (name == kInitialWindowSize && static_cast<uint32_t>(value_) < kDefaultWindow) {
      small_windows_ = true;
    }
  }
}

bool WindowUpdates::MayWait(size_t bytes, bool at_border) {
  waiting_window_ += piece_window_;
  waiting_bytes_ += bytes;
  const bool waits = only_updates_ && at_border && !small_windows_ &&
                     waiting_window_ <= kMaxWaiting && waiting_bytes_ <= kMaxWaitingBytes;
  if (!waits) waiting_window_ = waiting_bytes_ = 0;
  return waits;
}

}  // namespace baton
