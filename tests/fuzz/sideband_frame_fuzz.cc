// The input is a frame that a peer sends to an endpoint of cuda_ipc, verbs or nccl, or a stream of
// such frames. The parsers must not crash, and an accepted frame must encode to the same bytes.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "common/base/check.h"
#include "kvtransfer/sideband/frame.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string stream(reinterpret_cast<const char*>(data), size);
  for (size_t begin = 0, end = 0;; begin = end) {
    const auto next = baton::TakeStreamFrame(stream, end);
    if (!next.ok() || !next->has_value()) break;
    BATON_CHECK(baton::EncodeStreamFrame(**next) == stream.substr(begin, end - begin),
                "a frame of the stream encodes to other bytes");
  }
  const std::span<const std::byte> bytes(reinterpret_cast<const std::byte*>(data), size);
  const auto frame = baton::ParseSidebandFrame(bytes);
  if (!frame.ok()) return 0;
  const std::string again = baton::EncodeSidebandFrame(*frame);
  BATON_CHECK(again == stream, "the frame encodes to other bytes");
  return 0;
}
