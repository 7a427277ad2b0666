#pragma once

#include <optional>

namespace baton {

// The place of this process among those that one mpirun started.
struct MpirunPlace {
  int rank = 0;
  int size = 1;
};

// From the environment that OpenMPI's mpirun gives its processes. Nothing in a process that mpirun
// did not start, or started alone.
std::optional<MpirunPlace> PlaceInMpirun();

}  // namespace baton
