#include "common/config/mpirun.h"

#include <cstdlib>

namespace baton {

std::optional<MpirunPlace> PlaceInMpirun() {
  // NOLINTBEGIN(concurrency-mt-unsafe): nobody calls setenv
  const char* rank = std::getenv("OMPI_COMM_WORLD_RANK");
  const char* size = std::getenv("OMPI_COMM_WORLD_SIZE");
  // NOLINTEND(concurrency-mt-unsafe)
  if (rank == nullptr || size == nullptr || std::atoi(size) < 2) return std::nullopt;
  return MpirunPlace{std::atoi(rank), std::atoi(size)};
}

}  // namespace baton
