#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "kernels/dma.h"
#include "kvtransfer/cuda_ipc/ipc_receiver.h"
#include "kvtransfer/wire/frame_transport.h"

namespace baton {

// KV data between the GPUs of one host: the sender maps the receiver's arena and writes into it
// with copy engines. The sender keeps the windows (ipc_channel.h), so closing a window needs the
// sender's confirmation or the end of its process: caps().local_fence is false. Contract and
// threads: transport.h. Descriptor:
//   "1|host boot id|pid namespace|socket name|first region's export in hex".
class CudaIpcTransport final : public FrameTransport {
 public:
  // `dma` must outlive the transport. InvalidArgument if it is null: there is no GPU.
  static StatusOr<std::unique_ptr<Transport>> Create(const TransportOptions& options,
                                                     Dma* dma,
                                                     std::function<void(std::string_view)> log);
  // Waits, at most for the fence time-out, until no peer can write any more.
  ~CudaIpcTransport() override;

  std::string_view name() const override { return "cuda_ipc"; }
  TransportCaps caps() const override;
  // The buffer must be GPU memory that can be exported.
  StatusOr<std::unique_ptr<Region>> Register(const Buffer& buffer) override;
  StatusOr<std::string> Listen() override;
  void CloseWindow(uint64_t window_key) override;
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
      : FrameTransport(options, std::move(log), std::move(epoll), std::move(work_left)),
        dma_(dma) {}
  bool ServeMore(Time now) override;

  Dma& dma_;
  std::string first_export_;
  std::unique_ptr<IpcReceiver> receiver_;
};

}  // namespace baton
