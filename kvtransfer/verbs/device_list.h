#pragma once

#include <span>
#include <string>

#include <fmt/format.h>

#include "kvtransfer/verbs/verbs_library.h"

namespace baton {

// The RDMA devices of this machine. Not thread-safe.
class DeviceList final {
 public:
  explicit DeviceList(const VerbsLibrary& verbs)
      : verbs_(verbs), list_(verbs.get_device_list(&count_)) {}
  DeviceList(const DeviceList&) = delete;
  DeviceList& operator=(const DeviceList&) = delete;
  ~DeviceList() {
    if (list_ != nullptr) verbs_.free_device_list(list_);
  }

  std::span<ibv_device* const> devices() const {
    return {list_, list_ == nullptr ? 0 : static_cast<size_t>(count_)};
  }
  // "mlx5_0, mlx5_1", or "none".
  std::string Names() const {
    std::string names;
    for (ibv_device* device : devices()) {
      names += fmt::format("{}{}", names.empty() ? "" : ", ", verbs_.get_device_name(device));
    }
    return names.empty() ? "none" : names;
  }

 private:
  const VerbsLibrary& verbs_;
  int count_ = 0;
  ibv_device** const list_;
};

}  // namespace baton
