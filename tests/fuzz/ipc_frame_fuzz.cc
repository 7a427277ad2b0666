// What a peer may send to a cuda_ipc endpoint: nothing crashes, and what is accepted says the same
// again.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "common/base/check.h"
#include "kvtransfer/cuda_ipc/ipc_frame.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::span<const std::byte> bytes(reinterpret_cast<const std::byte*>(data), size);
  const auto frame = baton::ParseIpcFrame(bytes);
  if (!frame.ok()) return 0;
  const std::string again = baton::EncodeIpcFrame(*frame);
  BATON_CHECK(again == std::string(reinterpret_cast<const char*>(data), size), "another frame");
  return 0;
}
