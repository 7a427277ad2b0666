#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "kvtransfer/verbs/rail.h"

namespace baton {

// The GPU whose memory the rails will access.
struct NearDevice {
  std::string pci_address;  // empty: the memory is the host's
  std::filesystem::path sysfs = "/sys";
};

// Opens the rails that `options` names. If it names none: for a GPU's memory, all devices with an
// active port that are nearest to the GPU (one, if no distance is known), in the order of their PCI
// addresses, so that equal hosts have equal rails; for host memory, the first device with an active
// port. Logs each rail with the reason. Unavailable if there is no device; the message states what
// was looked for.
StatusOr<std::vector<std::unique_ptr<Rail>>> OpenRails(
    const VerbsLibrary& verbs,
    const VerbsOptions& options,
    const NearDevice& near,
    const std::function<void(std::string_view)>& log);

}  // namespace baton
