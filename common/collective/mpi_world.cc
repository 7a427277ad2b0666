#include "common/collective/mpi_world.h"

#include <dlfcn.h>

#include "common/base/shared_object.h"

namespace baton {

StatusOr<std::unique_ptr<MpiWorld>> OpenMpiWorld(const MpiOptions& options) {
  BATON_ASSIGN_OR_RETURN(
      void* const library,
      OpenSharedObject({.what = "Baton's MPI library",
                        .file = "libbaton_mpi.so",
                        .path = options.library,
                        .advice = "a group of ranks needs the Debian packages openmpi-bin and "
                                  "libopenmpi3 to run, and libopenmpi-dev when Baton is built"}));
  const auto open = reinterpret_cast<OpenMpiFunction>(dlsym(library, kOpenMpiSymbol));
  if (open == nullptr) {
    return MakeStatus(
        StatusCode::kFailedPrecondition, "Baton's MPI library has no {}", kOpenMpiSymbol);
  }
  std::unique_ptr<MpiWorld> world;
  BATON_RETURN_IF_ERROR(open(kMpiVersion, options, world));
  return world;
}

}  // namespace baton
