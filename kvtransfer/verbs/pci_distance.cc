#include "kvtransfer/verbs/pci_distance.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <system_error>

#include <fmt/format.h>

namespace baton {
namespace {

namespace fs = std::filesystem;

fs::path Resolve(const fs::path& link) {
  std::error_code error;
  fs::path path = fs::canonical(link, error);
  return error ? fs::path() : path;
}

// The NUMA node of a device. -1: the host has one node, or does not know.
int NumaNodeOf(const fs::path& device) {
  int node = -1;
  std::ifstream(device / "numa_node") >> node;
  return node;
}

// "pci0000:3a", the folder of a host bridge.
bool IsRootComplex(const fs::path& name) {
  return name.native().starts_with("pci");
}

}  // namespace

std::string PciDistance::ToString() const {
  switch (meeting) {
    case PciMeeting::kSwitch:
      return fmt::format("{} PCIe hops below one root port", hops);
    case PciMeeting::kRootComplex:
      return fmt::format("{} PCIe hops in one root complex", hops);
    case PciMeeting::kNumaNode:
      return "in the same NUMA node";
    case PciMeeting::kHost:
      return "in another NUMA node";
    case PciMeeting::kUnknown:
      break;
  }
  return "at an unknown distance";
}

fs::path RdmaDevicePath(const fs::path& sysfs, std::string_view name) {
  return Resolve(sysfs / "class/infiniband" / name / "device");
}

fs::path PciDevicePath(const fs::path& sysfs, std::string_view address) {
  return Resolve(sysfs / "bus/pci/devices" / address);
}

PciDistance DistanceBetween(const fs::path& a, const fs::path& b) {
  if (a.empty() || b.empty()) return {};
  const auto [end_a, end_b] = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
  // The bridges that both paths share lie below their common host bridge.
  const auto root = std::find_if(a.begin(), end_a, IsRootComplex);
  if (root != end_a) {
    const auto hops = std::distance(end_a, a.end()) + std::distance(end_b, b.end());
    const bool is_below_port = std::next(root) != end_a;
    return {is_below_port ? PciMeeting::kSwitch : PciMeeting::kRootComplex, static_cast<int>(hops)};
  }
  const int node = NumaNodeOf(a);
  return {node >= 0 && node == NumaNodeOf(b) ? PciMeeting::kNumaNode : PciMeeting::kHost, 0};
}

}  // namespace baton
