#include "kvtransfer/verbs/verbs_transport.h"

#include <algorithm>
#include <utility>

#include "common/base/host_port.h"
#include "kvtransfer/one_sided/channel.h"
#include "kvtransfer/sideband/stream_socket.h"
#include "kvtransfer/tcp/tcp_socket.h"
#include "kvtransfer/verbs/rail_choice.h"
#include "kvtransfer/verbs/verbs_access.h"
#include "kvtransfer/verbs/verbs_copier.h"
#include "kvtransfer/wire/host_dma_queue.h"

namespace baton {
namespace {

constexpr Duration kLookInterval = std::chrono::milliseconds(500);

}  // namespace

class VerbsTransport::VerbsRegion final : public Region {
 public:
  VerbsRegion(std::unique_ptr<Region> window_region,
              std::list<Registration>& all,
              std::list<Registration>::iterator own)
      : window_region_(std::move(window_region)), all_(all), own_(own) {}
  ~VerbsRegion() override { all_.erase(own_); }
  uint32_t id() const override { return window_region_->id(); }

 private:
  const std::unique_ptr<Region> window_region_;
  std::list<Registration>& all_;
  const std::list<Registration>::iterator own_;
};

StatusOr<std::unique_ptr<Transport>> VerbsTransport::Create(
    const StatusOr<const VerbsLibrary*>& verbs,
    const TransportOptions& options,
    Dma* dma,
    std::function<void(std::string_view)> log,
    const std::function<void(std::string_view)>& log_info) {
  BATON_RETURN_IF_ERROR(verbs.status());
  NearDevice near;
  if (dma != nullptr) {
    BATON_ASSIGN_OR_RETURN(near.pci_address, dma->PciAddress());
  }
  BATON_ASSIGN_OR_RETURN(auto rails, OpenRails(**verbs, options.verbs, near, log_info));
  BATON_ASSIGN_OR_RETURN(UniqueFd epoll, MakeEpoll());
  BATON_ASSIGN_OR_RETURN(UniqueFd work_left, MakeEventFd());
  return std::unique_ptr<Transport>(new VerbsTransport(
      options, dma, std::move(log), std::move(epoll), std::move(work_left), std::move(rails)));
}

VerbsTransport::VerbsTransport(const TransportOptions& options,
                               Dma* dma,
                               std::function<void(std::string_view)> log,
                               UniqueFd epoll,
                               UniqueFd work_left,
                               std::vector<std::unique_ptr<Rail>> rails)
    : OneSidedTransport(options, std::move(log), std::move(epoll), std::move(work_left)),
      dma_(dma),
      rails_(std::move(rails)) {}

VerbsTransport::~VerbsTransport() {
  EndPeers();
}

TransportCaps VerbsTransport::caps() const {
  TransportCaps caps = OneSidedTransport::caps();
  caps.busy_polls = dma_ != nullptr;
  return caps;
}

StatusOr<std::unique_ptr<Region>> VerbsTransport::Register(const Buffer& buffer) {
  if (dma_ != nullptr && buffer.kind() == MemoryKind::kHost) {
    return InvalidArgument("verbs moves the GPU's memory here, and the buffer is host memory");
  }
  // A device that cannot flush must be found out now, not when the first bytes have landed.
  if (dma_ != nullptr) BATON_RETURN_IF_ERROR(dma_->FlushPeerWrites());
  Registration registration;
  registration.buffer = &buffer;
  for (const auto& rail : rails_) {
    BATON_ASSIGN_OR_RETURN(MemoryRegion memory, rail->Register(buffer, dma_));
    registration.memory.push_back(std::move(memory));
  }
  registrations_.push_front(std::move(registration));
  return std::make_unique<VerbsRegion>(
      windows_.Add(buffer), registrations_, registrations_.begin());
}

StatusOr<std::unique_ptr<DmaQueue>> VerbsTransport::MakeChecksums() const {
  if (dma_ != nullptr) return dma_->MakeQueue();
  return HostDmaQueue::Create();
}

const VerbsTransport::Registration* VerbsTransport::Find(const Buffer& buffer) const {
  const auto found = std::ranges::find(registrations_, &buffer, &Registration::buffer);
  return found == registrations_.end() ? nullptr : &*found;
}

StatusOr<std::string> VerbsTransport::Listen() {
  BATON_ASSIGN_OR_RETURN(HostPort address, ParseHostPort(options_.listen_address));
  address.port = options_.verbs.listen_port;
  BATON_ASSIGN_OR_RETURN(TcpListener listener, ListenTcp(address.ToString(), options_));
  BATON_ASSIGN_OR_RETURN(auto checksums, MakeChecksums());
  const VerbsAccess::FindKeys find_keys = [this](const Buffer& memory) {
    std::vector<uint32_t> keys;
    const Registration* found = Find(memory);
    if (found == nullptr) return keys;
    for (const MemoryRegion& region : found->memory) keys.push_back(region->rkey);
    return keys;
  };
  ServePeers(std::move(listener.socket),
             std::move(checksums),
             [this, find_keys](UniqueFd accepted) -> StatusOr<AcceptedPeer> {
               BATON_ASSIGN_OR_RETURN(const TcpAddress peer_address, TuneAccepted(accepted));
               const std::string name = peer_address.ToString();
               BATON_ASSIGN_OR_RETURN(auto socket,
                                      VerbsSocket::Create(AcceptDataSocket(
                                          std::move(accepted), options_.proofs, name)));
               AcceptedPeer peer;
               BATON_ASSIGN_OR_RETURN(peer.access,
                                      VerbsAccess::Create(name, rails_, find_keys, dma_, *socket));
               peer.socket = std::move(socket);
               return peer;
             });
  VerbsDescriptor descriptor;
  descriptor.address = listener.advertised.ToString();
  for (const auto& rail : rails_) descriptor.rails.push_back(rail->port());
  return EncodeVerbsDescriptor(descriptor);
}

StatusOr<std::vector<RailQueues::RailUse>> VerbsTransport::RailsTo(const VerbsDescriptor& peer,
                                                                   Time now) const {
  std::vector<RailQueues::RailUse> all;
  std::vector<RailQueues::RailUse> working;
  Status problem;
  for (size_t i = 0; i < std::min(rails_.size(), peer.rails.size()); ++i) {
    const Status reachable = CheckReachable(i, rails_[i]->port(), peer.rails[i]);
    if (!reachable.ok()) {
      problem = reachable;
      continue;
    }
    const RailQueues::RailUse use{
        static_cast<uint16_t>(i), rails_[i].get(), options_.verbs.queue_pairs};
    all.push_back(use);
    if (!rails_[i]->is_paused(now) && rails_[i]->IsActive()) working.push_back(use);
  }
  if (all.empty()) return problem;
  return working.empty() ? all : working;
}

Status VerbsTransport::Reaches(std::string_view text) const {
  BATON_ASSIGN_OR_RETURN(const VerbsDescriptor peer, ParseVerbsDescriptor(text));
  BATON_RETURN_IF_ERROR(ParseAdvertised(peer.address).status());
  Status problem;
  for (size_t i = 0; i < std::min(rails_.size(), peer.rails.size()); ++i) {
    problem = CheckReachable(i, rails_[i]->port(), peer.rails[i]);
    if (problem.ok()) return problem;
  }
  return problem;
}

StatusOr<std::unique_ptr<Channel>> VerbsTransport::Connect(const Region& local,
                                                           std::string_view text,
                                                           uint32_t peer_region) {
  BATON_ASSIGN_OR_RETURN(const VerbsDescriptor peer, ParseVerbsDescriptor(text));
  BATON_ASSIGN_OR_RETURN(const TcpAddress address, ParseAdvertised(peer.address));
  BATON_ASSIGN_OR_RETURN(const auto uses, RailsTo(peer, SteadyClock().Now()));
  BATON_ASSIGN_OR_RETURN(const WindowTable::Memory memory, MemoryOf(local));
  VerbsCopier::Source source;
  source.buffer = memory.buffer;
  const Registration& registration = *Find(*memory.buffer);
  for (const RailQueues::RailUse& use : uses) {
    source.local_keys.push_back(registration.memory[use.index]->lkey);
  }
  BATON_ASSIGN_OR_RETURN(auto checksums, MakeChecksums());
  OneSidedChannel::Options options;
  BATON_ASSIGN_OR_RETURN(UniqueFd connecting, ConnectTcp(address));
  BATON_ASSIGN_OR_RETURN(
      auto socket,
      VerbsSocket::Create(DialDataSocket(std::move(connecting), options_.proofs.get())));
  BATON_ASSIGN_OR_RETURN(
      options.copier, VerbsCopier::Create(uses, std::move(source), std::move(checksums), *socket));
  options.socket = std::move(socket);
  options.boot = options_.boot;
  options.source_bytes = memory.bytes;
  options.peer_region = peer_region;
  options.epoll_fd = epoll_.get();
  options.connect_timeout = options_.connect_timeout;
  options.busy_polls = caps().busy_polls;
  return std::make_unique<OneSidedChannel>(std::move(options));
}

bool VerbsTransport::ServeMore(Time now) {
  if (now >= next_look_) {
    next_look_ = now + kLookInterval;
    for (const auto& rail : rails_) {
      for (const std::string& event : rail->TakeEvents()) {
        if (log_) log_(fmt::format("verbs: {}: {}", rail->ToString(), event));
      }
    }
  }
  return OneSidedTransport::ServeMore(now);
}

}  // namespace baton
