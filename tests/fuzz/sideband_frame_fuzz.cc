// The input is a frame that a peer sends to an endpoint of cuda_ipc, verbs or nccl. The parser must
// not crash, and an accepted frame must encode to the same bytes.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "common/base/check.h"
#include "kvtransfer/sideband/frame.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::span<const std::byte> bytes(reinterpret_cast<const std::byte*>(data), size);
  const auto frame = baton::ParseSidebandFrame(bytes);
  if (!frame.ok()) return 0;
  const std::string again = baton::EncodeSidebandFrame(*frame);
  BATON_CHECK(again == std::string(reinterpret_cast<const char*>(data), size),
              "the frame encodes to other bytes");
  return 0;
}
