#pragma once

#include "kvtransfer/verbs/verbs_library.h"

namespace baton {

// A libibverbs with the RDMA devices loop0 and loop1, which reach each other within this process.
// Queue pairs connect, RDMA WRITEs copy memory at once, immediate data consumes receive requests
// and waits while there is none, and completions notify their channel. A write outside of
// registered memory, or to a queue pair that is not there any more, fails and breaks its queue
// pair, as on a device. Nothing is late or lost. Thread-safe.
const VerbsLibrary& LoopbackVerbs();

}  // namespace baton
