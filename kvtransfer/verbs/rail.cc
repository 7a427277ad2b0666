#include "kvtransfer/verbs/rail.h"

#include <arpa/inet.h>
#include <fcntl.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <utility>

#include "kvtransfer/verbs/device_list.h"

namespace baton {
namespace {

// Relaxed ordering lets the device write faster over PCIe; a device that does not know it ignores
// it. The completion of a write with immediate data is still ordered behind the data.
constexpr int kAccess =
    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_RELAXED_ORDERING;

constexpr std::array<uint8_t, 12> kV4Prefix = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

Gid GidOf(const ibv_gid& gid) {
  Gid bytes;
  std::copy(std::begin(gid.raw), std::end(gid.raw), bytes.begin());
  return bytes;
}

std::string TextOf(const Gid& gid) {
  char text[INET6_ADDRSTRLEN] = "?";
  ::inet_ntop(AF_INET6, gid.data(), text, sizeof(text));
  return text;
}

bool IsV4(const Gid& gid) {
  return std::equal(kV4Prefix.begin(), kV4Prefix.end(), gid.begin());
}

bool IsLinkLocal(const Gid& gid) {
  return gid[0] == 0xfe && (gid[1] & 0xc0) == 0x80;
}

// Prefers IPv4, then global IPv6: link-local addresses do not cross routers. 0: not RoCE v2.
int PreferenceOf(const ibv_gid_entry& entry) {
  if (entry.gid_type != IBV_GID_TYPE_ROCE_V2) return 0;
  const Gid gid = GidOf(entry.gid);
  if (IsV4(gid)) return 3;
  return IsLinkLocal(gid) ? 1 : 2;
}

// The whole text as a number from 1 to 255. 0: it is not one.
uint8_t PortNumberOf(std::string_view text) {
  uint8_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() ? number : uint8_t{0};
}

}  // namespace

StatusOr<std::unique_ptr<Rail>> Rail::Open(const VerbsLibrary& verbs,
                                           std::string_view name,
                                           const VerbsOptions& options) {
  std::unique_ptr<Rail> rail(new Rail(verbs));
  const size_t colon = name.find(':');
  rail->device_ = name.substr(0, colon);
  if (colon != std::string_view::npos) rail->port_number_ = PortNumberOf(name.substr(colon + 1));
  if (rail->port_number_ == 0) {
    return InvalidArgument("RDMA device '{}' is not of the form mlx5_0 or mlx5_0:1", name);
  }
  const DeviceList list(verbs);
  const auto found = std::ranges::find_if(list.devices(), [&](ibv_device* device) {
    return verbs.get_device_name(device) == rail->device_;
  });
  if (found == list.devices().end()) {
    return MakeStatus(StatusCode::kNotFound,
                      "there is no RDMA device {}; ibv_devinfo shows these: {}",
                      rail->device_,
                      list.Names());
  }
  rail->context_ = VerbsPtr<ibv_context>(verbs.open_device(*found), {verbs.close_device});
  if (!rail->context_) {
    return MakeStatus(StatusCode::kUnavailable,
                      "RDMA device {} cannot be opened: {} (is /dev/infiniband accessible?)",
                      rail->device_,
                      std::strerror(errno));
  }
  // Events are taken without waiting for them.
  ::fcntl(rail->context_->async_fd, F_SETFL, O_NONBLOCK);
  rail->domain_ = VerbsPtr<ibv_pd>(verbs.alloc_pd(rail->context_.get()), {verbs.dealloc_pd});
  if (!rail->domain_) {
    return MakeStatus(StatusCode::kUnavailable,
                      "RDMA device {} gives no protection domain: {}",
                      rail->device_,
                      std::strerror(errno));
  }
  BATON_RETURN_IF_ERROR(rail->QueryPort(options));
  return rail;
}

Status Rail::QueryActivePort(ibv_port_attr& attributes) const {
  if (verbs_.query_port(context_.get(), port_number_, &attributes) == 0 &&
      attributes.state == IBV_PORT_ACTIVE) {
    return OkStatus();
  }
  return MakeStatus(StatusCode::kUnavailable,
                    "port {} of RDMA device {} is not active (ibv_devinfo shows its state)",
                    port_number_,
                    device_);
}

bool Rail::IsActive() const {
  ibv_port_attr attributes{};
  return QueryActivePort(attributes).ok();
}

Status Rail::QueryPort(const VerbsOptions& options) {
  ibv_device_attr device{};
  if (verbs_.query_device(context_.get(), &device) != 0 || port_number_ > device.phys_port_cnt) {
    return MakeStatus(StatusCode::kNotFound,
                      "RDMA device {} has no port {}; it has {}",
                      device_,
                      port_number_,
                      device.phys_port_cnt);
  }
  max_requests_ = static_cast<uint32_t>(std::max(device.max_qp_wr, 1));
  max_sources_ = static_cast<uint32_t>(std::clamp<int>(device.max_sge, 1, kMaxWriteSources));
  traffic_class_ = options.traffic_class;
  ibv_port_attr attributes{};
  BATON_RETURN_IF_ERROR(QueryActivePort(attributes));
  port_.lid = attributes.lid;
  port_.mtu = static_cast<uint8_t>(attributes.active_mtu);
  return ChooseGid(options, attributes);
}

Status Rail::ChooseGid(const VerbsOptions& options, const ibv_port_attr& attributes) {
  const bool is_infiniband = attributes.link_layer == IBV_LINK_LAYER_INFINIBAND;
  int best = 0;
  for (int i = 0; i < attributes.gid_tbl_len; ++i) {
    if (options.gid_index >= 0 && i != options.gid_index) continue;
    ibv_gid_entry entry{};
    const auto index = static_cast<uint32_t>(i);
    if (verbs_.query_gid_ex(context_.get(), port_number_, index, &entry, 0, sizeof(entry)) != 0) {
      continue;  // an empty entry
    }
    const int preference = is_infiniband || options.gid_index >= 0 ? 1 : PreferenceOf(entry);
    if (preference <= best) continue;
    best = preference;
    gid_index_ = static_cast<uint8_t>(i);
    port_.gid = GidOf(entry.gid);
  }
  if (best == 0) {
    return MakeStatus(StatusCode::kUnavailable,
                      "port {} of RDMA device {} has no {} (show_gids lists the GIDs)",
                      port_number_,
                      device_,
                      options.gid_index >= 0
                          ? fmt::format("GID with index {}", options.gid_index)
                          : std::string("GID for RoCE v2: give its network device an IP address"));
  }
  port_.kind = is_infiniband ? PortKind::kInfiniBand
                             : (IsV4(port_.gid) ? PortKind::kRoceV4 : PortKind::kRoceV6);
  return OkStatus();
}

std::string Rail::ToString() const {
  return fmt::format("{} port {}, GID {} ({}), {}",
                     device_,
                     port_number_,
                     gid_index_,
                     TextOf(port_.gid),
                     NameOf(port_.kind));
}

Status Rail::RegistrationFailed(size_t bytes) const {
  return MakeStatus(StatusCode::kUnavailable,
                    "RDMA device {} cannot register {} bytes: {}{}",
                    device_,
                    bytes,
                    std::strerror(errno),
                    errno == ENOMEM ? " (raise the limit of locked memory: ulimit -l)" : "");
}

StatusOr<MemoryRegion> Rail::Register(const Buffer& buffer, Dma* dma) const {
  if (buffer.kind() != MemoryKind::kHost) return RegisterDevice(buffer, dma);
  MemoryRegion region = RegisterAddress({buffer.data(), buffer.size()}, kAccess);
  if (region) return region;
  return RegistrationFailed(buffer.size());
}

StatusOr<MemoryRegion> Rail::RegisterPrivate(std::span<std::byte> memory) const {
  MemoryRegion region = RegisterAddress(memory, IBV_ACCESS_LOCAL_WRITE);
  if (region) return region;
  return RegistrationFailed(memory.size());
}

MemoryRegion Rail::RegisterAddress(std::span<std::byte> memory, int access) const {
  const auto address = reinterpret_cast<uintptr_t>(memory.data());
  return MemoryRegion(
      verbs_.reg_mr_iova2(
          domain_.get(), memory.data(), memory.size(), address, static_cast<unsigned>(access)),
      {verbs_.dereg_mr});
}

StatusOr<MemoryRegion> Rail::RegisterDevice(const Buffer& buffer, Dma* dma) const {
  if (dma == nullptr) return InvalidArgument("verbs moves a GPU's memory only through its Dma");
  const StatusOr<DmaBuf> exported = dma->ExportDmaBuf(buffer);
  std::string refused(Message(exported.status()));
  if (exported.ok()) {
    MemoryRegion region(verbs_.reg_dmabuf_mr(domain_.get(),
                                             exported->offset,
                                             buffer.size(),
                                             reinterpret_cast<uintptr_t>(buffer.data()),
                                             exported->fd.get(),
                                             kAccess),
                        {verbs_.dereg_mr});
    if (region) return region;
    refused = std::strerror(errno);
  }
  MemoryRegion region = RegisterAddress({buffer.data(), buffer.size()}, kAccess);
  if (region) return region;
  return MakeStatus(StatusCode::kUnavailable,
                    "RDMA device {} cannot register {} bytes of a GPU's memory: by dma-buf: {}; by "
                    "its address: {} (GPUDirect RDMA needs the open NVIDIA kernel modules or the "
                    "module nvidia-peermem)",
                    device_,
                    buffer.size(),
                    refused,
                    std::strerror(errno));
}

std::vector<std::string> Rail::TakeEvents() const {
  std::vector<std::string> names;
  ibv_async_event event{};
  while (verbs_.get_async_event(context_.get(), &event) == 0) {
    names.emplace_back(verbs_.event_type_str(event.event_type));
    verbs_.ack_async_event(&event);
  }
  return names;
}

}  // namespace baton
