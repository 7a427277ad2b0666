#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"
#include "common/collective/collective_options.h"
#include "kernels/collective.h"

namespace baton {

// All processes that one mpirun started, on one host or several. The destructor waits, at most 2 s,
// for the other ranks' destructors and then finalizes MPI; if a rank does not come, MPI is not
// finalized, and mpirun ends the job when this process exits. Thread-safe, except that each
// collective is for one thread at a time. At most one per process, ever: MPI cannot be initialised
// twice.
class MpiWorld {
 public:
  // The largest id of a collective: it is part of MPI's message tags.
  static constexpr int kMaxId = 4000;

  virtual ~MpiWorld() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  // All ranks can share memory (GroupMemory), which is faster than MPI.
  virtual bool one_host() const = 0;

  // The collective of all ranks, for example to exchange what the ranks need to know at the start.
  virtual Collective& all() = 0;
  // A collective of `ranks`, which include this one; member i is ranks[i]. Sends nothing. Every
  // member passes the same id between 1 and kMaxId, ranks and order; collectives that have a rank
  // in common have different ids. The world must outlive it. InvalidArgument otherwise.
  virtual StatusOr<std::unique_ptr<Collective>> MakeCollective(
      int id, const std::vector<int>& ranks, const CollectiveOptions& options) = 0;

  // Ends every wait of every rank: all calls of all collectives return Unavailable with `rank`,
  // which is the rank that is gone or late, and `message`. The first call counts. The other ranks
  // see it when they next enter or wait in a call.
  virtual void Abort(int rank, std::string_view message) = 0;
};

struct MpiOptions {
  // For the collective of all ranks.
  CollectiveOptions all;
  // The path of the shared object. Empty: libbaton_mpi.so beside this program, or in ../lib or
  // ../bin.
  std::string library;
};

// Initialises MPI in a process that mpirun started; in another process the world has one rank.
// NotFound names the Debian packages when MPI or Baton's shared object for it is missing.
StatusOr<std::unique_ptr<MpiWorld>> OpenMpiWorld(const MpiOptions& options);

// The function that the shared object exports under kOpenMpiSymbol. `version` must be kMpiVersion,
// because program and shared object are built together. Sets `out`.
using OpenMpiFunction = Status (*)(std::string_view version,
                                   const MpiOptions& options,
                                   std::unique_ptr<MpiWorld>& out);
inline constexpr char kOpenMpiSymbol[] = "BatonOpenMpi";
inline constexpr std::string_view kMpiVersion = "1 " __VERSION__;

}  // namespace baton
