#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tests/support/http2_frames.h"

// Clients of HTTP/2 that send frames without end. Each kind is known from reports about servers.
namespace baton::http2 {

struct Flood {
  std::string name;
  // What the client sends after its greeting.
  std::string first;
  // The next bytes. `turn` counts from 0.
  std::function<std::string(uint32_t turn)> next;
};

inline std::string Repeat(const std::string& text, int times) {
  std::string all;
  all.reserve(text.size() * static_cast<size_t>(times));
  for (int i = 0; i < times; ++i) all += text;
  return all;
}

// `path` is that of the requests.
inline std::vector<Flood> Floods(const std::string& path) {
  constexpr uint32_t kStreams = 200;  // that a turn opens
  const std::string header = Header("POST", path, {{"content-type", "application/grpc"}});
  // The stream 1, which stays open for data.
  const std::string open = Frame(kHeaders, kEndHeaders, 1, header);
  const auto repeated = [](const std::string& frame) {
    return [turn = Repeat(frame, 500)](uint32_t) { return turn; };
  };
  const auto each_stream = [](std::function<std::string(uint32_t stream)> frames) {
    return [frames = std::move(frames)](uint32_t turn) {
      std::string all;
      for (uint32_t i = 0; i < kStreams; ++i) all += frames(2 * (turn * kStreams + i) + 3);
      return all;
    };
  };
  // A value of 4,000 bytes that enters the dynamic table as number 62, and its number, one byte
  // (RFC 7541, sections 6.2.1 and 6.1).
  const std::string value = Line("x", std::string(4000, 'v')).replace(0, 1, "\x40");
  const std::string index(3000, '\xbe');
  std::string small;
  for (int i = 0; i < 3000; ++i) small += Line("a", "");
  const std::string cancel = Number(8, 4);
  return {
      {"a header that grows when it is read",
       open,
       [=](uint32_t turn) {
         return Frame(kHeaders, kEndHeaders, 2 * turn + 3, header + value + index);
       }},
      {"a header of endless frames",
       Frame(kHeaders, kNone, 1, header),
       repeated(Frame(kContinuation, kNone, 1, Line("name", "value")))},
      {"headers of many small lines",
       "",
       [=](uint32_t turn) { return Frame(kHeaders, kEndHeaders, 2 * turn + 1, header + small); }},
      {"requests that are reset", "", each_stream([=](uint32_t stream) {
         return Frame(kHeaders, kEndHeaders, stream, header) +
                Frame(kResetStream, kNone, stream, cancel);
       })},
      {"requests that do not end", "", each_stream([=](uint32_t stream) {
         return Frame(kHeaders, kEndHeaders, stream, header);
       })},
      {"data of one byte", open, repeated(Frame(kData, kNone, 1, std::string(1, '\0')))},
      {"empty data", open, repeated(Frame(kData, kNone, 1, ""))},
      {"pings", "", repeated(Frame(kPing, kNone, 0, "12345678"))},
      {"settings", "", repeated(Frame(kSettings, kNone, 0, ""))},
      {"priorities", "", repeated(Frame(kPriority, kNone, 1, Number(3, 4) + "\x10"))},
      {"windows that grow", open, repeated(Frame(kWindowUpdate, kNone, 0, Number(1, 4)))},
      {"frames of an unknown type", "", repeated(Frame(0x42, kNone, 0, "unknown"))},
  };
}

}  // namespace baton::http2
