#pragma once

#include <string>

#include "cli/cluster_client.h"

namespace baton {

// The cluster as text: a summary of the router, then tables of workers, transfers and refused
// joins.
std::string FormatCluster(const ClusterSummary& cluster);

}  // namespace baton
