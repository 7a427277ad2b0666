#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "common/base/status.h"

namespace baton {

// What the receiving end of a channel of "nccl" tells the sending end, as the text of kWelcome:
// "1|buffers|bytes of one buffer|id of the communicator in hex".
struct NcclWelcome {
  // Operations that may be announced and not acknowledged: each has a staging buffer of the
  // receiver.
  uint32_t buffers = 0;
  uint64_t buffer_bytes = 0;
  std::string pair_id;  // PairExchange::MakeId

  bool operator==(const NcclWelcome&) const = default;
};

std::string EncodeNcclWelcome(const NcclWelcome& welcome);
// InvalidArgument for a text that is not a welcome, or whose numbers are out of range.
StatusOr<NcclWelcome> ParseNcclWelcome(std::string_view text);

}  // namespace baton
