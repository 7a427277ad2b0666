#pragma once

namespace baton {

// Raises the process' soft limit of open descriptors (often 1,024) to its hard limit. Returns the
// soft limit that is then in force, or 0 when it cannot be read.
int RaiseDescriptorLimit();

// The number of connections, at most `wanted`, that fit into `limit` descriptors beside `others`
// reserved descriptors. When the latter leave less than half of the limit, half of the limit; at
// least 1.
int ConnectionsWithin(int limit, int wanted, int others);

}  // namespace baton
