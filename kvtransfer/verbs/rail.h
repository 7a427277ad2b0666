#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/clock.h"
#include "kernels/dma.h"
#include "kvtransfer/options.h"
#include "kvtransfer/verbs/handshake.h"
#include "kvtransfer/verbs/verbs_library.h"

namespace baton {

// The most ranges of memory that one RDMA WRITE gathers. More would only make requests longer.
constexpr uint32_t kMaxWriteSources = 16;

// Calls the destroy function of libibverbs for an object.
template <class Object>
struct VerbsDeleter {
  int (*destroy)(Object*) = nullptr;
  void operator()(Object* object) const { destroy(object); }
};
template <class Object>
using VerbsPtr = std::unique_ptr<Object, VerbsDeleter<Object>>;

using MemoryRegion = VerbsPtr<ibv_mr>;

// One port of an opened RDMA device, with its protection domain. Rail i of a sender writes to rail
// i of a receiver. Owned by a transport; its thread only. It must outlive its queue pairs,
// completion queues and memory regions.
class Rail final {
 public:
  // `name`: "mlx5_0", or "mlx5_0:2" for port 2. `why` is the reason for the choice, for the log.
  // Errors: NotFound: no such device or port; Unavailable: the port is down or has no usable GID.
  static StatusOr<std::unique_ptr<Rail>> Open(const VerbsLibrary& verbs,
                                              std::string_view name,
                                              const VerbsOptions& options);

  const VerbsLibrary& verbs() const { return verbs_; }
  ibv_context* context() const { return context_.get(); }
  ibv_pd* domain() const { return domain_.get(); }
  const PortAddress& port() const { return port_; }
  uint8_t port_number() const { return port_number_; }
  uint8_t gid_index() const { return gid_index_; }
  uint8_t traffic_class() const { return traffic_class_; }
  // The largest number of requests that one queue of a queue pair may hold.
  uint32_t max_requests() const { return max_requests_; }
  // The ranges of memory that one write may gather; at least 1.
  uint32_t max_sources() const { return max_sources_; }
  // "rxe0 port 1, GID 1 (…), RoCE v2 over IPv4".
  std::string ToString() const;

  // Registers the memory for writes by this process's queue pairs and by its peers. A GPU's memory
  // is registered by its dma-buf or, where that fails, by its address, which needs the kernel
  // module nvidia-peermem. `dma` is the GPU's; null for host memory.
  StatusOr<MemoryRegion> Register(const Buffer& buffer, Dma* dma) const;
  // Registers memory of the host that only this process's own requests may read and write.
  StatusOr<MemoryRegion> RegisterPrivate(std::span<std::byte> memory) const;

  // The asynchronous events of the device since the last call, one name each.
  std::vector<std::string> TakeEvents() const;

  // A queue pair failed. For kRetryAfter no new channel uses the rail, if there is another rail.
  void MarkFailed(Time now) { failed_ = now; }
  bool is_paused(Time now) const { return failed_ != Time{} && now < failed_ + kRetryAfter; }
  // Asks the device whether the port is active.
  bool IsActive() const;

  static constexpr Duration kRetryAfter = std::chrono::seconds(10);

 private:
  explicit Rail(const VerbsLibrary& verbs) : verbs_(verbs) {}
  // Null, and errno, if that fails.
  MemoryRegion RegisterAddress(std::span<std::byte> memory, int access) const;
  Status RegistrationFailed(size_t bytes) const;  // by errno
  StatusOr<MemoryRegion> RegisterDevice(const Buffer& buffer, Dma* dma) const;
  // The port's attributes, if it is active.
  Status QueryActivePort(ibv_port_attr& attributes) const;
  Status QueryPort(const VerbsOptions& options);
  // Chooses the GID: the configured one, else the best one for RoCE v2.
  Status ChooseGid(const VerbsOptions& options, const ibv_port_attr& attributes);

  const VerbsLibrary& verbs_;
  std::string device_;
  uint8_t port_number_ = 1;
  VerbsPtr<ibv_context> context_;
  VerbsPtr<ibv_pd> domain_;
  PortAddress port_;
  uint8_t gid_index_ = 0;
  uint8_t traffic_class_ = 0;
  uint32_t max_requests_ = 0;
  uint32_t max_sources_ = 1;
  Time failed_{};
};

}  // namespace baton
