// The input is what the receiving end of a channel of "nccl" answers to the first frame. The parser
// must not crash, and what it accepts must come back when it is encoded again.

#include <cstddef>
#include <cstdint>
#include <string>

#include "common/base/check.h"
#include "kvtransfer/nccl/welcome.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  if (const auto welcome = baton::ParseNcclWelcome(bytes); welcome.ok()) {
    const auto again = baton::ParseNcclWelcome(baton::EncodeNcclWelcome(*welcome));
    BATON_CHECK(again.ok() && *again == *welcome, "it is another welcome when it is encoded again");
  }
  return 0;
}
