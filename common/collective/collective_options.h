#pragma once

#include <cstddef>
#include <optional>

#include "common/base/clock.h"

namespace baton {

struct CollectiveOptions {
  // The longest wait for another rank, for example the step limit. Duration::max(): a rank waits
  // until the others come or the group is aborted.
  Duration limit = std::chrono::seconds(60);
  // A waiting rank busy-polls for this long before it sleeps, because waking a sleeping thread can
  // take 0.3 ms. Unset: 50 µs when this process may use at least as many CPUs as the group has
  // ranks on this host, else 0.
  std::optional<Duration> busy_poll;
  // MPI: the bytes that Send may leave waiting for receivers (bytes_ahead). The logits of a step
  // fit into them. In shared memory the slots decide.
  size_t ahead_bytes = size_t{256} << 20;
};

// The duration that `options` state for a group with `ranks` ranks on this host.
Duration BusyPollOf(const CollectiveOptions& options, int ranks);

}  // namespace baton
