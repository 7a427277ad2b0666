#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"
#include "common/collective/collective_options.h"
#include "kernels/collective.h"

namespace baton {

// A message that MpiWorld::Post sent.
struct MpiLetter {
  int from = 0;  // rank
  std::string bytes;
};

// All processes that one mpirun started, on one host or several. The destructor closes.
// Thread-safe, except that each collective is for one thread at a time. At most one per process,
// ever: MPI cannot be initialised twice.
class MpiWorld {
 public:
  // The largest id of a collective: it is part of MPI's message tags.
  static constexpr int kMaxId = 4000;

  virtual ~MpiWorld() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  // By rank: the lowest rank of the same host. Ranks of one host can share memory (GroupMemory),
  // which is faster than MPI.
  virtual const std::vector<int>& first_on_host() const = 0;

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

  // Sends `bytes` to another rank without waiting for it. Take returns the letters of one rank in
  // their order. Errors: Unavailable when the group is aborted or closed, or MPI failed.
  virtual Status Post(int to, std::string bytes) = 0;
  // The next letter of any rank; nothing after `timeout`. MPI cannot wake a thread, so the wait
  // looks for letters and sleeps for `pause` in between. One thread at a time. Errors: as Post.
  virtual StatusOr<std::optional<MpiLetter>> Take(Duration timeout, Duration pause) = 0;

  // Waits, at most 2 s, until the other ranks close too, and finalizes MPI. If a rank does not
  // come, MPI is not finalized, and mpirun ends the job when this process exits. Later calls return
  // Unavailable.
  virtual void Close() = 0;
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
inline constexpr std::string_view kMpiVersion = "2 " __VERSION__;

}  // namespace baton
