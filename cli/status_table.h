#pragma once

#include <string>

#include "cli/cluster_client.h"

namespace baton {

// A cluster as people read it: the router's line, tables of workers, transfers and refused joins.
std::string FormatCluster(const ClusterSummary& cluster);

}  // namespace baton
