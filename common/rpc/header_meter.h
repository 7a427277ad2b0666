#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

struct nghttp2_hd_inflater;

namespace baton {

// Measures the headers of one direction of a connection of HTTP/2 as they will be after HPACK (RFC
// 7541) is undone: a value of the dynamic table costs its sender one byte. Keeps the dynamic table,
// 4 KiB, and at most one line. Not thread-safe.
class HeaderMeter final {
 public:
  // Counted for each line, beside the bytes of its name and value: what gRPC keeps of a line.
  static constexpr size_t kLineBytes = 128;
  // The largest header. gRPC itself refuses requests whose header has more than 8 KiB.
  static constexpr size_t kMaxHeaderBytes = size_t{64} << 10;

  HeaderMeter();

  // Takes the next bytes of a header; `last`: it ends with them. False when the header is malformed
  // or too large; nothing may be taken after that.
  bool Take(std::string_view bytes, bool last);
  // The size of the header so far; of a complete one until the next begins.
  size_t header_bytes() const { return header_bytes_; }

 private:
  struct Free {
    void operator()(nghttp2_hd_inflater* inflater) const;
  };

  const std::unique_ptr<nghttp2_hd_inflater, Free> inflater_;
  size_t header_bytes_ = 0;
  bool complete_ = true;
};

}  // namespace baton
