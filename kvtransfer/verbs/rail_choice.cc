#include "kvtransfer/verbs/rail_choice.h"

#include <algorithm>
#include <utility>

#include "kvtransfer/verbs/device_list.h"
#include "kvtransfer/verbs/pci_distance.h"

namespace baton {
namespace {

using Rails = std::vector<std::unique_ptr<Rail>>;

struct Candidate {
  PciDistance distance;
  std::filesystem::path path;
  std::string name;
};

// The devices of the list, the nearest ones first. For host memory, in the order of the list.
std::vector<Candidate> CandidatesOf(const VerbsLibrary& verbs,
                                    const DeviceList& list,
                                    const NearDevice& near) {
  std::vector<Candidate> candidates;
  const bool is_host = near.pci_address.empty();
  const auto gpu = is_host ? std::filesystem::path() : PciDevicePath(near.sysfs, near.pci_address);
  for (ibv_device* device : list.devices()) {
    Candidate candidate;
    candidate.name = verbs.get_device_name(device);
    if (!is_host) {
      candidate.path = RdmaDevicePath(near.sysfs, candidate.name);
      candidate.distance = DistanceBetween(gpu, candidate.path);
    }
    candidates.push_back(std::move(candidate));
  }
  std::ranges::stable_sort(candidates, {}, [](const Candidate& candidate) {
    return std::pair(candidate.distance, candidate.path);
  });
  return candidates;
}

}  // namespace

StatusOr<Rails> OpenRails(const VerbsLibrary& verbs,
                          const VerbsOptions& options,
                          const NearDevice& near,
                          const std::function<void(std::string_view)>& log) {
  Rails rails;
  const auto add = [&](std::unique_ptr<Rail> rail, std::string_view why) {
    if (log) log(fmt::format("verbs: rail {} is {}: {}", rails.size(), rail->ToString(), why));
    rails.push_back(std::move(rail));
  };
  if (options.devices.size() > kMaxRails) {
    return InvalidArgument(
        "{} RDMA devices are named; at most {} are allowed", options.devices.size(), kMaxRails);
  }
  for (const std::string& name : options.devices) {
    BATON_ASSIGN_OR_RETURN(auto rail, Rail::Open(verbs, name, options));
    add(std::move(rail), "named in the configuration");
  }
  if (!rails.empty()) return rails;
  const DeviceList list(verbs);
  std::string problems;
  PciDistance nearest;
  for (const Candidate& candidate : CandidatesOf(verbs, list, near)) {
    const bool is_equal = candidate.distance == nearest && nearest.meeting != PciMeeting::kUnknown;
    if (rails.size() == kMaxRails || (!rails.empty() && !is_equal)) break;
    auto rail = Rail::Open(verbs, candidate.name, options);
    if (!rail.ok()) {
      problems += fmt::format("; {}", Message(rail.status()));
      continue;
    }
    if (near.pci_address.empty()) {
      add(*std::move(rail), "the first device whose port is active");
      return rails;
    }
    nearest = candidate.distance;
    add(*std::move(rail),
        fmt::format("the nearest to the GPU {}, {}", near.pci_address, nearest.ToString()));
  }
  if (!rails.empty()) return rails;
  return MakeStatus(StatusCode::kUnavailable,
                    "there is no usable RDMA device; ibv_devinfo shows these: {}{}",
                    list.Names(),
                    problems);
}

}  // namespace baton
