#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/device/cuda_device.h"
#include "tests/fakes/thread_collective.h"

namespace baton {

// The ranks of a group, each with a GPU and a thread of this process, for tests.
class RankThreads final {
 public:
  static constexpr int kRanks = 2;  // unless a test asks for more

  // Why groups of `ranks` ranks cannot be tested here; empty when they can: as many GPUs, and NCCL.
  static std::string Missing(int ranks = kRanks);
  // The sizes of groups for which there are GPUs, from 2 to 8. At least 2.
  static std::vector<int> Sizes();

  // `pipeline`: stages instead of tensor ranks. Opens the GPUs.
  explicit RankThreads(bool pipeline,
                       Duration limit = std::chrono::seconds(30),
                       int ranks = kRanks);

  // Runs `body` for every rank on a thread of its own, with the rank's device current. Returns the
  // results by rank.
  std::vector<Status> Run(const std::function<Status(int rank)>& body);
  // Makes the Ops of all ranks.
  Status MakeOps(const CudaOptions& options);

  int ranks() const { return group_.size(); }
  RankGroups groups(int rank);
  ThreadGroup& group() { return group_; }
  cuda::CudaDevice& device(int rank) { return *devices_[static_cast<size_t>(rank)]; }
  Ops& ops(int rank) { return *ops_[static_cast<size_t>(rank)]; }
  // Destroys the Ops of all ranks.
  void Close() { ops_.clear(); }

 private:
  const bool pipeline_;
  const Duration limit_;
  ThreadGroup group_;
  std::vector<std::unique_ptr<cuda::CudaDevice>> devices_;
  std::vector<std::unique_ptr<Ops>> ops_;
};

}  // namespace baton
