#pragma once

#include <cstddef>

#include "kvtransfer/verbs/verbs_library.h"

namespace baton {

// A libibverbs with the RDMA devices loop0 and loop1, which reach each other within this process.
// Queue pairs connect, RDMA WRITEs and SENDs copy memory at once, immediate data and SENDs consume
// receive requests and wait while there is none, and completions notify their channel. A write
// outside of registered memory, a message that is larger than its receive request, or anything sent
// to a queue pair that is not there any more, fails and breaks its queue pair, as on a device.
// Nothing is late or lost. Thread-safe.
const VerbsLibrary& LoopbackVerbs();

// The processor time that the devices have taken so far to carry out what was posted, which is
// mostly the copies. Real devices take none.
double LoopbackDeviceSeconds();

struct LoopbackObjects {
  size_t queue_pairs = 0;
  size_t memory_regions = 0;
};
// The objects that both devices have now.
LoopbackObjects CountLoopbackObjects();

}  // namespace baton
