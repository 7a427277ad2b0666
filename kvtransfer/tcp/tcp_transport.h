#pragma once

#include "kvtransfer/tcp/tcp_address.h"
#include "kvtransfer/wire/frame_transport.h"

namespace baton {

// KV data over TCP. Payloads are gathered from the source blocks into the socket, and received
// directly into the granted blocks; a GPU's memory goes through StagingBuffers on its side. The
// fence of a window is local: bytes that still arrive for it are discarded. Descriptor:
// "1|IP:port", or "1|IP:port|authenticated" if the receiver requires authenticated frames. Contract
// and threads: transport.h.
class TcpTransport final : public FrameTransport {
 public:
  // `dma` must outlive the transport; it is null if no memory is a GPU's.
  static StatusOr<std::unique_ptr<Transport>> Create(const TransportOptions& options,
                                                     Dma* dma,
                                                     std::function<void(std::string_view)> log);

  std::string_view name() const override { return "tcp"; }
  TransportCaps caps() const override;
  StatusOr<std::unique_ptr<Region>> Register(const Buffer& buffer) override;
  StatusOr<std::string> Listen() override;
  Status Reaches(std::string_view descriptor) const override;
  StatusOr<std::unique_ptr<Channel>> Connect(const Region& local,
                                             std::string_view descriptor,
                                             uint32_t peer_region) override;

 private:
  TcpTransport(const TransportOptions& options,
               Dma* dma,
               std::function<void(std::string_view)> log,
               UniqueFd epoll,
               UniqueFd work_left)
      : FrameTransport(options, std::move(log), std::move(epoll), std::move(work_left)),
        dma_(dma) {}

  // An address in a descriptor, and whether frames must be authenticated. An error also if this
  // side cannot do that.
  struct Endpoint {
    TcpAddress address;
    bool authenticated = false;
  };
  StatusOr<Endpoint> Parse(std::string_view descriptor) const;
  StatusOr<std::unique_ptr<PeerConnection>> Accept(UniqueFd socket, Time now);

  Dma* const dma_;
};

}  // namespace baton
