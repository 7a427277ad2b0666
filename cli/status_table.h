#pragma once

#include <string>

#include "cli/cluster_client.h"

namespace baton {

// The cluster as text: a summary of the router, then tables of workers, their ranks,
// transfers, pairs whose hand-offs fail, and refused joins.
std::string FormatCluster(const ClusterSummary& cluster);

// The KV transfers of each pair of workers in detail: state, counts of faults, and why faster
// transports are not in use.
std::string FormatTransfers(const ClusterSummary& cluster);

}  // namespace baton
