#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

#include "common/base/clock.h"
#include "common/base/ids.h"
#include "common/base/sampling_params.h"
#include "common/worker/router_key.h"
#include "kvtransfer/options.h"

// The sizes and times of a HandoffWorld: as small as the protocol allows, so that few steps decide.
namespace baton {

// Of a prompt, in blocks of tokens.
inline constexpr uint32_t kBlocks = 2;
// An arena has this many blocks more than a prompt, so fewer than two prompts need: the next
// request uses what the last one released.
inline constexpr uint32_t kMoreBlocks = 1;
inline constexpr uint32_t kTokensPerBlock = 16;
inline constexpr uint64_t kPieceBytes = 100;
inline constexpr uint32_t kMaxAttempts = 3;
inline constexpr uint32_t kMaxRedirects = 2;

inline constexpr SessionTimes kTimes{.renew = std::chrono::milliseconds(100),
                                     .lease = std::chrono::milliseconds(250),
                                     .drain = std::chrono::milliseconds(50),
                                     .fence = std::chrono::milliseconds(50)};
inline constexpr Duration kRoleTick = std::chrono::milliseconds(100);
inline constexpr Duration kRoleWait = std::chrono::milliseconds(300);
inline constexpr Duration kHandoffLimit = std::chrono::milliseconds(1000);
// Late is later than every wait of a session, and later than an ended session is remembered.
inline constexpr Duration kLinger = std::chrono::milliseconds(200);
inline constexpr Duration kLateBy = std::chrono::milliseconds(400);

inline constexpr RouterKey kRouter{1};

// Stands in a block table for a block that a hand-off does not owe: nothing may use it.
inline constexpr BlockId kUnowed{UINT32_MAX};

// The threads whose histories a trace has.
enum Thread : size_t {
  kSenderThread,
  kReceiverThread,
  kRouterThread,
  kPrefillThread,
  kDecodeThread,
  kEngines,
  kOutside,
};
// The content of an entry of a block table, and the first token: both tell who computed them.
inline constexpr uint64_t TagOf(RequestId request, uint32_t epoch, uint32_t entry) {
  return (request.value() * 1000 + epoch) * 10 + entry;
}
inline TokenId FirstTokenOf(RequestId request, Epoch epoch) {
  return static_cast<TokenId>(request.value() * 1000 + epoch.value());
}

}  // namespace baton
