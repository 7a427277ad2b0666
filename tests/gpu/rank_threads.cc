#include "tests/gpu/rank_threads.h"

#include <cuda_runtime_api.h>

#include <thread>

#include "common/base/check.h"
#include "kernels/cuda/device/cuda_status.h"
#include "kernels/cuda/exchange/nccl_library.h"

namespace baton {

std::string RankThreads::Missing() {
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess) count = 0;
  if (count < kRanks) return fmt::format("{} GPUs were found; {} are needed", count, kRanks);
  const auto nccl = cuda::NcclLibrary::Load();
  return nccl.ok() ? "" : std::string(Message(nccl.status()));
}

RankThreads::RankThreads(bool pipeline, Duration limit) : pipeline_(pipeline), limit_(limit) {
  for (int rank = 0; rank < kRanks; ++rank) {
    auto device = cuda::CudaDevice::Open(rank);
    BATON_CHECK(device.ok(), "{}", Message(device.status()));
    devices_.push_back(*std::move(device));
  }
}

RankGroups RankThreads::groups(int rank) {
  RankGroups groups;
  (pipeline_ ? groups.pipeline : groups.tensor) = group_.rank(rank);
  groups.limit = limit_;
  return groups;
}

std::vector<Status> RankThreads::Run(const std::function<Status(int rank)>& body) {
  std::vector<Status> results(kRanks);
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back([&, rank] {
      const Status current = cuda::ToStatus(device(rank).MakeCurrent(), "cudaSetDevice");
      results[static_cast<size_t>(rank)] = current.ok() ? body(rank) : current;
    });
  }
  threads.clear();
  return results;
}

Status RankThreads::MakeOps(const CudaOptions& options) {
  ops_.clear();
  ops_.resize(kRanks);
  const std::vector<Status> made = Run([&](int rank) -> Status {
    CudaOptions mine = options;
    mine.groups = groups(rank);
    BATON_ASSIGN_OR_RETURN(ops_[static_cast<size_t>(rank)], MakeCudaOps(device(rank), mine));
    return OkStatus();
  });
  for (const Status& status : made) BATON_RETURN_IF_ERROR(status);
  return OkStatus();
}

}  // namespace baton
