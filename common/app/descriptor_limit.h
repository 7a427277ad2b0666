#pragma once

namespace baton {

// Raises the process' soft limit of open descriptors (often 1,024) to its hard limit and returns
// what holds then.
int RaiseDescriptorLimit();

// How many of `wanted` connections fit into `limit` descriptors beside `others`; one at least, and
// half of the limit where `others` leave less.
int ConnectionsWithin(int limit, int wanted, int others);

}  // namespace baton
