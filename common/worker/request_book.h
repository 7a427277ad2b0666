#pragma once

#include <utility>

#include <absl/container/flat_hash_map.h>

#include "common/base/clock.h"
#include "common/base/ids.h"
#include "common/engine/request.h"
#include "common/worker/worker_types.h"

namespace baton {

// A request in the engine: whose it is, and what was seen of it.
struct BookEntry {
  RouterKey router;
  RequestKind kind = RequestKind::kServe;
  Time arrival{};
  Time first_token{};
  Time last_token{};
  int32_t tokens = 0;
  bool router_told = false;  // of its end
  // The answer is complete although the engine was told to cancel: by its first token, which the
  // prefill worker chose, or by a stop string, which the router found.
  bool complete = false;
};

// The requests in the engine, by (id, epoch). Belongs to the worker's thread.
using RequestBook = absl::flat_hash_map<std::pair<RequestId, Epoch>, BookEntry>;

}  // namespace baton
