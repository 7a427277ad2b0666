#pragma once

#include <functional>
#include <list>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "kvtransfer/one_sided/transport.h"
#include "kvtransfer/verbs/rail.h"
#include "kvtransfer/verbs/rail_queues.h"

namespace baton {

// KV data over RDMA (InfiniBand or RoCE v2): the sender writes into the receiver's arena with RDMA
// WRITE. The frames of the one-sided protocol take a TCP connection for the handshake, then RDMA
// SEND (VerbsSocket). A window that the sender does not give back is closed by destroying the queue
// pairs of that sender that may write. Contract and threads:
// kvtransfer/transport.h. Descriptor: VerbsDescriptor.
class VerbsTransport final : public OneSidedTransport {
 public:
  // `verbs` is VerbsLibrary::Load(), except in tests. `dma` is the GPU's whose memory is moved, or
  // null; it must outlive the transport. `log_info` receives a line for each rail. Unavailable if
  // there is no libibverbs or no device; the message states what was looked for.
  static StatusOr<std::unique_ptr<Transport>> Create(
      const StatusOr<const VerbsLibrary*>& verbs,
      const TransportOptions& options,
      Dma* dma,
      std::function<void(std::string_view)> log,
      const std::function<void(std::string_view)>& log_info);
  ~VerbsTransport() override;

  std::string_view name() const override { return "verbs"; }
  TransportCaps caps() const override;
  // Registers the buffer with every rail, once, which pins its memory. Errors: those of
  // Rail::Register; FailedPrecondition for a GPU that neither orders nor flushes RDMA writes.
  StatusOr<std::unique_ptr<Region>> Register(const Buffer& buffer) override;
  StatusOr<std::string> Listen() override;
  Status Reaches(std::string_view descriptor) const override;
  StatusOr<std::unique_ptr<Channel>> Connect(const Region& local,
                                             std::string_view descriptor,
                                             uint32_t peer_region) override;

 protected:
  bool ServeMore(Time now) override;

 private:
  // A registered buffer. A region refers to it.
  struct Registration {
    const Buffer* buffer = nullptr;
    std::vector<MemoryRegion> memory;  // by rail
  };
  class VerbsRegion;

  VerbsTransport(const TransportOptions& options,
                 Dma* dma,
                 std::function<void(std::string_view)> log,
                 UniqueFd epoll,
                 UniqueFd work_left,
                 std::vector<std::unique_ptr<Rail>> rails);

  // Computes the checksums of the registered memory.
  StatusOr<std::unique_ptr<DmaQueue>> MakeChecksums() const;
  const Registration* Find(const Buffer& buffer) const;
  // The rails that a new channel to this peer uses: those that both sides have and that are active
  // and not paused. If there is none, all that both sides have.
  StatusOr<std::vector<RailQueues::RailUse>> RailsTo(const VerbsDescriptor& peer, Time now) const;

  Dma* const dma_;
  const std::vector<std::unique_ptr<Rail>> rails_;
  std::list<Registration> registrations_;
  Time next_look_{};  // for asynchronous events
};

}  // namespace baton
