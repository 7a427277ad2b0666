#pragma once

#include <string>

#include "cli/cluster_client.h"

namespace baton {

// A cluster as people read it: the router's line, a table of workers, a table of transfers.
std::string FormatCluster(const ClusterSummary& cluster);

}  // namespace baton
