#include "common/kernel_report/device_choice.h"

#include <algorithm>
#include <array>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "kernels/describe_gpu.h"

namespace baton {
namespace {

struct Card {
  std::string_view architecture;
  std::string_view name;
  int32_t number = 0;
  int32_t sm_count = 0;
  int32_t block_shared_kib = 0;
  // Resident clusters of 2, 4, 8 and 16 thread blocks; measured on the H200, else assumed.
  std::array<int32_t, 4> clusters = {};
};
constexpr std::array kCards = {
    Card{"sm_80", "A100", 80, 108, 163},
    Card{"sm_86", "A10", 86, 72, 99},
    Card{"sm_89", "L40S", 89, 142, 99},
    Card{"sm_90", "H200", 90, 132, 227, {66, 31, 14, 8}},
    Card{"sm_100", "B200", 100, 148, 227, {74, 36, 16, 8}},
    Card{"sm_120", "RTX PRO 6000", 120, 188, 99, {94, 46, 22, 11}},
};

}  // namespace

std::vector<std::string_view> TypicalArchitectures() {
  std::vector<std::string_view> architectures;
  for (const Card& card : kCards) architectures.push_back(card.architecture);
  return architectures;
}

StatusOr<ReportedGpu> TypicalGpu(std::string_view architecture, bool portable) {
  const auto* const card = std::ranges::find(kCards, architecture, &Card::architecture);
  if (card == kCards.end()) {
    return InvalidArgument("the architecture is '{}'; it must be one of {}",
                           architecture,
                           fmt::join(TypicalArchitectures(), ", "));
  }
  ReportedGpu gpu;
  cuda::DeviceProperties& device = gpu.limits.device;
  device.architecture = device.code_architecture = card->number;
  device.sm_count = card->sm_count;
  device.block_shared_bytes = card->block_shared_kib << 10;
  device.portable = portable;
  gpu.limits.clusters = MayRun(cuda::KernelFamily::kClusters, device);
  for (auto& active : gpu.limits.active_clusters) std::ranges::copy(card->clusters, active);
  gpu.name = fmt::format("{}: {} SMs and {} KiB of shared memory for a thread block, as {}{}",
                         architecture,
                         card->sm_count,
                         card->block_shared_kib,
                         card->name,
                         gpu.limits.clusters ? fmt::format("; clusters of 2, 4, 8, 16 resident: {}",
                                                           fmt::join(card->clusters, ", "))
                                             : "");
  return gpu;
}

StatusOr<ReportedGpu> FindGpu(const std::string& device,
                              bool portable,
                              const std::string& cuda_library) {
  ReportedGpu gpu;
  BATON_ASSIGN_OR_RETURN(gpu.limits, DescribeGpu(device, cuda_library));
  gpu.limits.device.portable = portable;
  gpu.limits.clusters = gpu.limits.clusters && !portable;
  gpu.name = fmt::format(
      "{}: sm_{}, code for sm_{}, {} SMs, {} KiB of shared memory for a thread "
      "block",
      device,
      gpu.limits.device.architecture,
      gpu.limits.device.code_architecture,
      gpu.limits.device.sm_count,
      gpu.limits.device.block_shared_bytes >> 10);
  return gpu;
}

}  // namespace baton
