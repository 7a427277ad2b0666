#pragma once

#include "common/cluster/worker_info.h"

namespace baton {

// Which worker of a hand-off takes its KV blocks first. All arenas of a cluster are in one order,
// and every hand-off takes blocks in this order: workers that only prefill come first, then workers
// that do both, by id, then workers that only decode. So a hand-off that holds blocks waits only
// for later arenas, and hand-offs never wait for each other in a circle (kvtransfer/waiting.md).
// Every router must use the same order.
inline bool DecodeTakesFirst(const WorkerInfo& prefill, const WorkerInfo& decode) {
  return prefill.can_decode && decode.can_prefill && decode.id < prefill.id;
}

}  // namespace baton
