#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "kernels/dma.h"
#include "kvtransfer/nccl/aborted_pairs.h"
#include "kvtransfer/one_sided/grant_table.h"
#include "kvtransfer/sideband/frame_socket.h"
#include "kvtransfer/wire/frame_transport.h"

namespace baton {

// KV data between two GPUs by NCCL's send and receive, through staging memory at both ends. Each
// channel has a communicator of two ranks: the receiving end is rank 0. A TCP connection carries
// the frames, and the id of the communicator before it exists. Contract and threads: transport.h.
// Descriptor: "1|IP:port|id of the device in hex".
class NcclTransport final : public FrameTransport {
 public:
  // `dma` must outlive the transport. InvalidArgument if it is null: there is no GPU. Errors of
  // Dma::Pairs: there is no NCCL.
  static StatusOr<std::unique_ptr<Transport>> Create(const TransportOptions& options,
                                                     Dma* dma,
                                                     std::function<void(std::string_view)> log);
  // Waits up to 10 s for aborts that run.
  ~NcclTransport() override;

  std::string_view name() const override { return "nccl"; }
  // The fence of a channel aborts its communicator. This ends the writes of all sessions between
  // the two ranks; their requests are retried. Closing a window costs other sessions nothing.
  TransportCaps caps() const override;
  // The buffer must be GPU memory.
  StatusOr<std::unique_ptr<Region>> Register(const Buffer& buffer) override;
  StatusOr<std::string> Listen() override;
  void CloseWindow(uint64_t window_key) override;
  Status Reaches(std::string_view descriptor) const override;
  StatusOr<std::unique_ptr<Channel>> Connect(const Region& local,
                                             std::string_view descriptor,
                                             uint32_t peer_region) override;

  // The number of communicators of this transport whose abort has not ended.
  size_t aborting() const { return aborted_.size(); }

 protected:
  bool ServeMore(Time now) override;

 private:
  NcclTransport(const TransportOptions& options,
                Dma& dma,
                PairExchange& exchange,
                std::function<void(std::string_view)> log,
                UniqueFd epoll,
                UniqueFd work_left);

  StatusOr<std::unique_ptr<PeerConnection>> Accept(UniqueFd socket, Time now);

  Dma& dma_;
  PairExchange& exchange_;
  AbortedPairs aborted_;
  GrantTable copies_;
  GrantTable::PeerId next_connection_ = 1;
};

}  // namespace baton
