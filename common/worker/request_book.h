#pragma once

#include <absl/container/flat_hash_map.h>

#include "common/base/clock.h"
#include "common/base/ids.h"
#include "common/cluster/request.h"
#include "common/worker/router_key.h"

namespace baton {

// A request in the engine: the router that dispatched it, and its progress so far.
struct BookEntry {
  RouterKey router;
  RequestKind kind = RequestKind::kServe;
  Time arrival{};
  Time first_token{};
  Time last_token{};
  int32_t tokens = 0;
  bool end_reported = false;  // the router knows that the request has ended
  // The answer is complete although the engine was asked to cancel the request: it ended with the
  // first token, which the prefill worker sampled, or with a stop string, which the router found.
  bool complete = false;
};

// The requests in the engine, by (id, epoch). Used only on the worker's thread.
using RequestBook = absl::flat_hash_map<RequestKey, BookEntry>;

}  // namespace baton
