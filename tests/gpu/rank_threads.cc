#include "tests/gpu/rank_threads.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <thread>

#include "common/base/check.h"
#include "kernels/cuda/device/cuda_status.h"
#include "kernels/cuda/exchange/nccl_library.h"
#include "kernels/cuda/sums/peer_parts.h"
#include "tests/gpu/test_device.h"

namespace baton {
namespace {

// A kernel that is loaded when it is first launched may wait for the device, where another kernel
// waits for a rank that is a thread of this process and needs the same lock of the driver. So all
// kernels are loaded before.
[[maybe_unused]] const int kLoadsEarly = ::setenv("CUDA_MODULE_LOADING", "EAGER", 1);

}  // namespace

namespace {

int DeviceCount() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
}

}  // namespace

std::string RankThreads::Missing(int ranks) {
  const int count = DeviceCount();
  if (count < ranks) return fmt::format("{} GPUs were found; {} are needed", count, ranks);
  const auto nccl = cuda::NcclLibrary::Load();
  return nccl.ok() ? "" : std::string(Message(nccl.status()));
}

std::vector<int> RankThreads::Sizes() {
  std::vector<int> sizes = {kRanks};
  const int most = std::min(DeviceCount(), cuda::kMaxPeerRanks);
  while (sizes.back() < most) sizes.push_back(sizes.back() + 1);
  return sizes;
}

RankThreads::RankThreads(bool pipeline, Duration limit, int ranks)
    : pipeline_(pipeline), limit_(limit), group_(ranks) {
  for (int rank = 0; rank < ranks; ++rank) {
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
  std::vector<Status> results(static_cast<size_t>(ranks()));
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < ranks(); ++rank) {
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
  ops_.resize(static_cast<size_t>(ranks()));
  const std::vector<Status> made = Run([&](int rank) -> Status {
    CudaOptions mine = options;
    mine.groups = groups(rank);
    BATON_ASSIGN_OR_RETURN(ops_[static_cast<size_t>(rank)],
                           MakeCudaOps(device(rank), cuda::TestedOptions(mine)));
    return OkStatus();
  });
  for (const Status& status : made) BATON_RETURN_IF_ERROR(status);
  return OkStatus();
}

}  // namespace baton
