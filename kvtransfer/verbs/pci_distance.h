#pragma once

#include <compare>
#include <filesystem>
#include <string>
#include <string_view>

namespace baton {

// Where the paths of two PCI devices meet, from near to far. Bytes are slower the farther they go:
// many hosts do not carry them between root complexes at the rate of the link.
enum class PciMeeting {
  kSwitch,       // below one root port
  kRootComplex,  // in one host bridge
  kNumaNode,     // in one NUMA node
  kHost,
  kUnknown,  // one of them is not a PCI device, as soft-RoCE's
};

struct PciDistance {
  PciMeeting meeting = PciMeeting::kUnknown;
  int hops = 0;  // of kSwitch and kRootComplex: the bridges and devices on the way
  auto operator<=>(const PciDistance&) const = default;
  // "2 PCIe hops below one root port", "in another NUMA node".
  std::string ToString() const;
};

// The folder of an RDMA device in sysfs, such as /sys/devices/pci0000:3a/…/0000:3c:00.0. Empty for
// a device without hardware. `sysfs` is /sys, except in tests.
std::filesystem::path RdmaDevicePath(const std::filesystem::path& sysfs, std::string_view name);
// The folder of the device with this PCI address ("0000:3b:00.0"). Empty: there is none.
std::filesystem::path PciDevicePath(const std::filesystem::path& sysfs, std::string_view address);

// The distance between two devices, given their folders.
PciDistance DistanceBetween(const std::filesystem::path& a, const std::filesystem::path& b);

}  // namespace baton
