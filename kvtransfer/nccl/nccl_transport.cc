#include "kvtransfer/nccl/nccl_transport.h"

#include <algorithm>
#include <cctype>
#include <utility>

#include <absl/strings/escaping.h>

#include "common/base/host_port.h"
#include "kvtransfer/nccl/nccl_channel.h"
#include "kvtransfer/nccl/nccl_connection.h"
#include "kvtransfer/sideband/stream_socket.h"
#include "kvtransfer/tcp/tcp_socket.h"

namespace baton {
namespace {

// An abort takes less than this, whether the peer is alive or gone.
constexpr Duration kMaxAbortTime = std::chrono::seconds(10);

constexpr std::string_view kDescriptorVersion = "1|";

struct Descriptor {
  TcpAddress address;
  std::string device;  // in hex
};

StatusOr<Descriptor> Parse(std::string_view text) {
  const size_t bar = text.rfind('|');
  if (!text.starts_with(kDescriptorVersion) || bar < kDescriptorVersion.size()) {
    return InvalidArgument("nccl descriptor '{}' is not '1|IP:port|device'", text.substr(0, 64));
  }
  Descriptor descriptor;
  const size_t begin = kDescriptorVersion.size();
  BATON_ASSIGN_OR_RETURN(descriptor.address, ParseAdvertised(text.substr(begin, bar - begin)));
  descriptor.device = text.substr(bar + 1);
  return descriptor;
}

}  // namespace

StatusOr<std::unique_ptr<Transport>> NcclTransport::Create(
    const TransportOptions& options, Dma* dma, std::function<void(std::string_view)> log) {
  if (dma == nullptr) return InvalidArgument("nccl moves GPU memory, but there is none");
  BATON_ASSIGN_OR_RETURN(PairExchange * exchange, dma->Pairs());
  BATON_ASSIGN_OR_RETURN(UniqueFd epoll, MakeEpoll());
  BATON_ASSIGN_OR_RETURN(UniqueFd work_left, MakeEventFd());
  return std::unique_ptr<Transport>(new NcclTransport(
      options, *dma, *exchange, std::move(log), std::move(epoll), std::move(work_left)));
}

NcclTransport::NcclTransport(const TransportOptions& options,
                             Dma& dma,
                             PairExchange& exchange,
                             std::function<void(std::string_view)> log,
                             UniqueFd epoll,
                             UniqueFd work_left)
    : FrameTransport(options, std::move(log), std::move(epoll), std::move(work_left)),
      dma_(dma),
      exchange_(exchange),
      aborted_(kMaxAbortTime),
      copies_(options.fence_timeout) {}

NcclTransport::~NcclTransport() {
  StopServing();  // the connections use members of this class
}

TransportCaps NcclTransport::caps() const {
  TransportCaps caps;
  caps.max_op_bytes = kNcclBufferBytes;
  caps.max_op_runs = kMaxSidebandRecords;
  caps.op_bytes = kNcclBufferBytes;
  caps.flight_bytes = 2 * kNcclBuffers * kNcclBufferBytes;
  return caps;
}

StatusOr<std::unique_ptr<Region>> NcclTransport::Register(const Buffer& buffer) {
  if (buffer.kind() != MemoryKind::kCuda) return InvalidArgument("nccl moves GPU memory only");
  return windows_.Add(buffer);
}

StatusOr<std::string> NcclTransport::Listen() {
  BATON_ASSIGN_OR_RETURN(const std::string device, exchange_.DeviceId());
  BATON_ASSIGN_OR_RETURN(HostPort address, ParseHostPort(options_.listen_address));
  address.port = 0;
  BATON_ASSIGN_OR_RETURN(TcpListener listener, ListenTcp(address.ToString(), options_));
  Serve(std::move(listener.socket),
        [this](UniqueFd accepted, Time now) { return Accept(std::move(accepted), now); });
  return fmt::format("{}{}|{}",
                     kDescriptorVersion,
                     listener.advertised.ToString(),
                     absl::BytesToHexString(device));
}

StatusOr<std::unique_ptr<PeerConnection>> NcclTransport::Accept(UniqueFd socket, Time now) {
  BATON_ASSIGN_OR_RETURN(const TcpAddress peer, TuneAccepted(socket));
  NcclConnection::Options options;
  options.peer = peer.ToString();
  options.id = next_connection_++;
  options.device = {&dma_, &exchange_, &aborted_};
  options.epoll_fd = epoll_.get();
  options.connect_timeout = options_.nccl.connect_timeout;
  options.stall_timeout = options_.nccl.stall_timeout;
  auto frames = AcceptDataSocket(std::move(socket), options_.proofs, options.peer);
  return std::make_unique<NcclConnection>(
      std::move(frames), std::move(options), windows_, copies_, now);
}

void NcclTransport::CloseWindow(uint64_t window_key) {
  const WriteWindow* window = windows_.FindWindow(window_key);
  if (window == nullptr) return;
  const uint32_t region = window->region;
  windows_.Remove(window_key);
  if (server() != nullptr) server()->OnWindowClosed(window_key);
  copies_.Close(window_key, region);
  SignalWork(true);
}

bool NcclTransport::ServeMore(Time now) {
  aborted_.Reap();
  copies_.OnTime(now);
  for (Arrival& arrival : copies_.TakeArrivals()) windows_.Report(std::move(arrival));
  return false;
}

Status NcclTransport::Reaches(std::string_view text) const {
  BATON_ASSIGN_OR_RETURN(const Descriptor peer, Parse(text));
  BATON_ASSIGN_OR_RETURN(const std::string device, exchange_.DeviceId());
  if (peer.device != absl::BytesToHexString(device)) return OkStatus();
  return MakeStatus(StatusCode::kUnavailable,
                    "the peer uses the same GPU, and NCCL has no two ranks on one GPU");
}

StatusOr<std::unique_ptr<Channel>> NcclTransport::Connect(const Region& local,
                                                          std::string_view text,
                                                          uint32_t peer_region) {
  BATON_ASSIGN_OR_RETURN(const Descriptor peer, Parse(text));
  BATON_ASSIGN_OR_RETURN(const WindowTable::Memory source, MemoryOf(local));
  BATON_ASSIGN_OR_RETURN(UniqueFd socket, ConnectTcp(peer.address));
  NcclChannel::Options options;
  options.peer = peer.address.ToString();
  options.device = {&dma_, &exchange_, &aborted_};
  options.source = source.buffer;
  options.peer_region = peer_region;
  options.epoll_fd = epoll_.get();
  options.connect_timeout = options_.nccl.connect_timeout;
  options.stall_timeout = options_.nccl.stall_timeout;
  return std::make_unique<NcclChannel>(DialDataSocket(std::move(socket), options_.proofs.get()),
                                       std::move(options));
}

}  // namespace baton
