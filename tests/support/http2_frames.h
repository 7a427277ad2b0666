#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

// Frames of HTTP/2 (RFC 9113) as bytes, for clients that do what no library does.
namespace baton::http2 {

inline constexpr std::string_view kPreface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

enum Type : uint8_t {
  kData = 0,
  kHeaders = 1,
  kPriority = 2,
  kResetStream = 3,
  kSettings = 4,
  kPing = 6,
  kGoAway = 7,
  kWindowUpdate = 8,
  kContinuation = 9,
};
enum Flag : uint8_t { kNone = 0, kEndStream = 1, kEndHeaders = 4, kPadded = 8 };
enum Code : uint32_t {
  kNoError = 0,
  kProtocolError = 1,
  kInternalError = 2,
  kEnhanceYourCalm = 11
};

inline std::string Number(uint64_t value, int bytes) {
  std::string text;
  for (int at = bytes - 1; at >= 0; --at) text += static_cast<char>(value >> (8 * at));
  return text;
}

inline std::string Frame(uint8_t type, int flags, uint32_t stream, const std::string& payload) {
  return Number(payload.size(), 3) + static_cast<char>(type) + static_cast<char>(flags) +
         Number(stream, 4) + payload;
}

// What a client sends first.
inline std::string Greeting() {
  return std::string(kPreface) + Frame(kSettings, kNone, 0, "");
}

// A line of a header, not indexed and not compressed (RFC 7541, section 6.2.2).
inline std::string Line(const std::string& name, const std::string& value) {
  const auto text = [](const std::string& from) {
    std::string length;
    if (from.size() < 127) {
      length += static_cast<char>(from.size());
    } else {
      length += '\x7f';
      size_t rest = from.size() - 127;
      for (; rest >= 128; rest /= 128) length += static_cast<char>(rest % 128 + 128);
      length += static_cast<char>(rest);
    }
    return length + from;
  };
  return std::string(1, '\0') + text(name) + text(value);
}

using Lines = std::vector<std::pair<std::string, std::string>>;

// The header of a request.
inline std::string Header(const std::string& method,
                          const std::string& path,
                          const Lines& more = {}) {
  std::string block = Line(":method", method) + Line(":scheme", "http") + Line(":path", path) +
                      Line(":authority", "test");
  for (const auto& [name, value] : more) block += Line(name, value);
  return block;
}

struct Received {
  uint8_t type = 0;
  uint8_t flags = 0;
  uint32_t stream = 0;
  std::string payload;
};

// The frames in `bytes`, without a last one that is cut.
inline std::vector<Received> FramesIn(std::string_view bytes) {
  const auto number = [&bytes](size_t at, size_t size) {
    uint32_t value = 0;
    for (size_t i = 0; i < size; ++i) value = value << 8 | static_cast<uint8_t>(bytes[at + i]);
    return value;
  };
  std::vector<Received> frames;
  while (bytes.size() >= 9 && bytes.size() - 9 >= number(0, 3)) {
    const size_t size = number(0, 3);
    frames.push_back({static_cast<uint8_t>(bytes[3]),
                      static_cast<uint8_t>(bytes[4]),
                      number(5, 4),
                      std::string(bytes.substr(9, size))});
    bytes.remove_prefix(9 + size);
  }
  return frames;
}

// The error code of the first GOAWAY or RST_STREAM frame (`type`) in `bytes`; -1: there is none.
inline int64_t ErrorCodeIn(std::string_view bytes, uint8_t type) {
  for (const Received& frame : FramesIn(bytes)) {
    if (frame.type != type) continue;
    const std::string code = frame.payload.substr(type == kGoAway ? 4 : 0, 4);
    int64_t value = 0;
    for (const char byte : code) value = value << 8 | static_cast<uint8_t>(byte);
    return value;
  }
  return -1;
}

}  // namespace baton::http2
