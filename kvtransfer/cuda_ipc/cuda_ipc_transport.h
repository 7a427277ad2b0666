#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "kernels/dma.h"
#include "kvtransfer/one_sided/transport.h"

namespace baton {

// KV data between the GPUs of one host: the sender maps the receiver's arena and writes into it
// with copy engines. If the sender does not confirm that a window is closed, the end of its process
// proves it. Contract and threads: kvtransfer/transport.h. Descriptor:
//   "1|host boot id|pid namespace|socket name|first region's export in hex".
class CudaIpcTransport final : public OneSidedTransport {
 public:
  // `dma` must outlive the transport. InvalidArgument if it is null: there is no GPU.
  static StatusOr<std::unique_ptr<Transport>> Create(const TransportOptions& options,
                                                     Dma* dma,
                                                     std::function<void(std::string_view)> log);

  std::string_view name() const override { return "cuda_ipc"; }
  TransportCaps caps() const override;
  // The buffer must be GPU memory that can be exported.
  StatusOr<std::unique_ptr<Region>> Register(const Buffer& buffer) override;
  StatusOr<std::string> Listen() override;
  Status Reaches(std::string_view descriptor) const override;
  StatusOr<std::unique_ptr<Channel>> Connect(const Region& local,
                                             std::string_view descriptor,
                                             uint32_t peer_region) override;

 private:
  CudaIpcTransport(const TransportOptions& options,
                   Dma& dma,
                   std::function<void(std::string_view)> log,
                   UniqueFd epoll,
                   UniqueFd work_left)
      : OneSidedTransport(options, std::move(log), std::move(epoll), std::move(work_left)),
        dma_(dma) {}

  Dma& dma_;
  std::string first_export_;
};

}  // namespace baton
