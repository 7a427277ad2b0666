// The input is what a peer sends before the first RDMA WRITE: a handshake, or the descriptor of its
// endpoint. The parsers must not crash, and what they accept must encode to the same bytes.

#include <cstddef>
#include <cstdint>
#include <string>

#include "common/base/check.h"
#include "kvtransfer/verbs/handshake.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  if (const auto handshake = baton::ParseHandshake(bytes); handshake.ok()) {
    BATON_CHECK(baton::EncodeHandshake(*handshake) == bytes, "it encodes to other bytes");
  }
  if (const auto descriptor = baton::ParseVerbsDescriptor(bytes); descriptor.ok()) {
    const std::string again = baton::EncodeVerbsDescriptor(*descriptor);
    BATON_CHECK(baton::ParseVerbsDescriptor(again).ok(), "it is refused when it is encoded again");
  }
  return 0;
}
