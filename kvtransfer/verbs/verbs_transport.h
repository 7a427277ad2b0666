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
// WRITE. The frames of the one-sided protocol take a TCP connection. A window that the sender does
// not give back is closed by destroying the queue pairs of that sender. Contract and threads:
// kvtransfer/transport.h. Descriptor: VerbsDescriptor.
class VerbsTransport final : public OneSidedTransport {
 public:
  // `log_info` receives a line for each rail. Unavailable if there is no libibverbs or no device;
  // the message states what was looked for.
  static StatusOr<std::unique_ptr<Transport>> Create(
      const TransportOptions& options,
      std::function<void(std::string_view)> log,
      const std::function<void(std::string_view)>& log_info);
  ~VerbsTransport() override;

  std::string_view name() const override { return "verbs"; }
  // Pins the buffer's memory and registers it with every rail, once.
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
                 std::function<void(std::string_view)> log,
                 UniqueFd epoll,
                 UniqueFd work_left,
                 std::vector<std::unique_ptr<Rail>> rails);

  const Registration* Find(const Buffer& buffer) const;
  // The socket of a peer that has connected; it must prove who it is when options_.proofs says so.
  std::unique_ptr<FrameSocket> AcceptSocket(UniqueFd accepted, const std::string& peer) const;
  // The rails that a new channel to this peer uses: those that both sides have and that are active
  // and not paused. If there is none, all that both sides have.
  StatusOr<std::vector<RailQueues::RailUse>> RailsTo(const VerbsDescriptor& peer, Time now) const;

  const std::vector<std::unique_ptr<Rail>> rails_;
  std::list<Registration> registrations_;
  Time next_look_{};  // for asynchronous events
};

}  // namespace baton
