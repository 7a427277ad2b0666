#include "kvtransfer/cuda_ipc/cuda_ipc_transport.h"

#include <sys/socket.h>

#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include <absl/strings/escaping.h>

#include "common/base/hash.h"
#include "common/base/local_socket.h"
#include "kvtransfer/cuda_ipc/dma_copier.h"
#include "kvtransfer/cuda_ipc/ipc_access.h"
#include "kvtransfer/cuda_ipc/ipc_socket.h"
#include "kvtransfer/one_sided/channel.h"

namespace baton {
namespace {

// The fields of a descriptor.
struct Descriptor {
  std::string host;
  std::string namespace_id;
  std::string socket;
  std::string exported;
};

// Process ids are comparable only between processes of the same pid namespace.
StatusOr<std::string> PidNamespace() {
  std::error_code error;
  const auto link = std::filesystem::read_symlink("/proc/self/ns/pid", error);
  if (error) return MakeStatus(StatusCode::kUnavailable, "/proc/self/ns/pid: {}", error.message());
  return link.string();
}

StatusOr<Descriptor> LocalDescriptor() {
  Descriptor own;
  BATON_ASSIGN_OR_RETURN(own.host, HostBootId());
  BATON_ASSIGN_OR_RETURN(own.namespace_id, PidNamespace());
  return own;
}

StatusOr<Descriptor> Parse(std::string_view text) {
  std::vector<std::string_view> parts;
  for (size_t at = 0; at <= text.size() && parts.size() <= 5;) {
    const size_t bar = std::min(text.find('|', at), text.size());
    parts.push_back(text.substr(at, bar - at));
    at = bar + 1;
  }
  if (parts.size() != 5 || parts[0] != "1" || parts[4].size() % 2 != 0) {
    return InvalidArgument("cuda_ipc descriptor '{}' is not '1|host|pid namespace|socket|memory'",
                           text.substr(0, 64));
  }
  for (const char digit : parts[4]) {
    if (!std::isxdigit(static_cast<unsigned char>(digit))) {
      return InvalidArgument("cuda_ipc descriptor: the memory export is not in hex");
    }
  }
  Descriptor descriptor{
      std::string(parts[1]), std::string(parts[2]), std::string(parts[3]), std::string()};
  descriptor.exported = absl::HexStringToBytes(std::string(parts[4]));
  return descriptor;
}

// The parsed descriptor, if the peer runs where this process can map its memory and wait for the
// end of its process.
StatusOr<Descriptor> ParseReachable(std::string_view text) {
  BATON_ASSIGN_OR_RETURN(Descriptor theirs, Parse(text));
  BATON_ASSIGN_OR_RETURN(const Descriptor ours, LocalDescriptor());
  if (theirs.host != ours.host) {
    return MakeStatus(StatusCode::kUnavailable, "the peer is on another host ({})", theirs.host);
  }
  if (theirs.namespace_id != ours.namespace_id) {
    return MakeStatus(StatusCode::kUnavailable,
                      "the peer is in another pid namespace ({}, not {})",
                      theirs.namespace_id,
                      ours.namespace_id);
  }
  return theirs;
}

}  // namespace

StatusOr<std::unique_ptr<Transport>> CudaIpcTransport::Create(
    const TransportOptions& options, Dma* dma, std::function<void(std::string_view)> log) {
  if (dma == nullptr) return InvalidArgument("cuda_ipc moves GPU memory, but there is none");
  BATON_ASSIGN_OR_RETURN(UniqueFd epoll, MakeEpoll());
  BATON_ASSIGN_OR_RETURN(UniqueFd work_left, MakeEventFd());
  return std::unique_ptr<Transport>(
      new CudaIpcTransport(options, *dma, std::move(log), std::move(epoll), std::move(work_left)));
}

TransportCaps CudaIpcTransport::caps() const {
  TransportCaps caps = OneSidedTransport::caps();
  caps.op_bytes = size_t{32} << 20;
  caps.flight_bytes = size_t{256} << 20;
  // NVLink stays awake for 50 ms after a byte, and meanwhile a GPU at its power limit computes
  // 1.6% slower (bench/results/h200/link_power.txt).
  caps.prefers_bursts = true;
  caps.busy_polls = true;
  return caps;
}

StatusOr<std::unique_ptr<Region>> CudaIpcTransport::Register(const Buffer& buffer) {
  if (buffer.kind() != MemoryKind::kCuda) return InvalidArgument("cuda_ipc moves GPU memory only");
  BATON_ASSIGN_OR_RETURN(std::string exported, dma_.Export(buffer));
  if (first_export_.empty()) first_export_ = std::move(exported);
  return windows_.Add(buffer);
}

StatusOr<std::string> CudaIpcTransport::Listen() {
  BATON_ASSIGN_OR_RETURN(const Descriptor own, LocalDescriptor());
  BATON_ASSIGN_OR_RETURN(auto checksums, dma_.MakeQueue());
  const std::string name = fmt::format("baton-ipc-{:016x}", RandomId());
  BATON_ASSIGN_OR_RETURN(UniqueFd socket, ListenLocal(name, SOCK_SEQPACKET));
  ServePeers(std::move(socket),
             std::move(checksums),
             [&dma = dma_](UniqueFd accepted) -> StatusOr<AcceptedPeer> {
               AcceptedPeer peer;
               BATON_ASSIGN_OR_RETURN(peer.access, IpcAccess::Create(accepted, dma));
               peer.socket = std::make_unique<IpcSocket>(std::move(accepted));
               return peer;
             });
  return fmt::format(
      "1|{}|{}|{}|{}", own.host, own.namespace_id, name, absl::BytesToHexString(first_export_));
}

Status CudaIpcTransport::Reaches(std::string_view text) const {
  BATON_ASSIGN_OR_RETURN(const Descriptor peer, ParseReachable(text));
  BATON_RETURN_IF_ERROR(ConnectLocal(peer.socket, SOCK_SEQPACKET).status());
  return dma_.Import(peer.exported).status();
}

StatusOr<std::unique_ptr<Channel>> CudaIpcTransport::Connect(const Region& local,
                                                             std::string_view text,
                                                             uint32_t peer_region) {
  BATON_ASSIGN_OR_RETURN(const Descriptor peer, ParseReachable(text));
  BATON_ASSIGN_OR_RETURN(const WindowTable::Memory source, MemoryOf(local));
  BATON_ASSIGN_OR_RETURN(UniqueFd socket, ConnectLocal(peer.socket, SOCK_SEQPACKET));
  BATON_ASSIGN_OR_RETURN(auto queue, dma_.MakeQueue());
  OneSidedChannel::Options options;
  options.socket = std::make_unique<IpcSocket>(std::move(socket));
  options.copier = std::make_unique<DmaCopier>(dma_, std::move(queue), *source.buffer);
  options.boot = options_.boot;
  options.source_bytes = source.bytes;
  options.peer_region = peer_region;
  options.epoll_fd = epoll_.get();
  options.connect_timeout = options_.connect_timeout;
  options.takes_held_writes = true;
  options.busy_polls = true;
  return std::make_unique<OneSidedChannel>(std::move(options));
}

}  // namespace baton
