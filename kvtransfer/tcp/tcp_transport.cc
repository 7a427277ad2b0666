#include "kvtransfer/tcp/tcp_transport.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>

#include "common/base/mapped_file.h"
#include "kvtransfer/tcp/tcp_address.h"
#include "kvtransfer/wire/connection.h"

namespace baton {
namespace {

constexpr std::string_view kDescriptorVersion = "1|";
constexpr int kSocketBufferBytes = 4 << 20;
constexpr int kBacklog = 512;

Status SocketError(std::string_view what, const TcpAddress& address) {
  return MakeStatus(
      StatusCode::kUnavailable, "{} {}: {}", what, address.ToString(), std::strerror(errno));
}

void SetOption(int fd, int level, int name, int value) {
  // These options only improve speed or find dead peers sooner, so errors are ignored.
  (void)::setsockopt(fd, level, name, &value, sizeof(value));
}

// Requests a large socket buffer if the machine's limit allows it. With a smaller limit the request
// would give less than the kernel's auto-tuning reaches, so the buffer is left alone.
void EnlargeBuffer(int fd, int name, const char* limit_file) {
  const auto limit = ReadFile(limit_file, 64);
  if (limit.ok() && std::atoll(limit->c_str()) >= kSocketBufferBytes) {
    SetOption(fd, SOL_SOCKET, name, kSocketBufferBytes);
  }
}

void Tune(int fd) {
  SetOption(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  SetOption(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  SetOption(fd, IPPROTO_TCP, TCP_KEEPIDLE, 5);
  SetOption(fd, IPPROTO_TCP, TCP_KEEPINTVL, 2);
  SetOption(fd, IPPROTO_TCP, TCP_KEEPCNT, 3);
  SetOption(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, 15000);
}

StatusOr<TcpAddress> ParseDescriptor(std::string_view descriptor) {
  if (!descriptor.starts_with(kDescriptorVersion)) {
    return InvalidArgument(
        "tcp descriptor '{}' does not begin with {}", descriptor.substr(0, 64), kDescriptorVersion);
  }
  BATON_ASSIGN_OR_RETURN(const TcpAddress address,
                         ParseTcpAddress(descriptor.substr(kDescriptorVersion.size())));
  if (address.is_wildcard() || address.port() == 0) {
    return InvalidArgument("tcp descriptor '{}' needs an address and a port that are not 0",
                           descriptor);
  }
  return address;
}

// The connection of one peer. Receives payloads from the socket.
class TcpConnection final : public Connection {
 public:
  TcpConnection(Options options, WindowTable& windows, Time now)
      : Connection(std::move(options), windows, now) {}

 protected:
  Status OnPreface(std::vector<UniqueFd>) override { return OkStatus(); }
  Status BeginPayload(const WriteHeader&, std::span<const WriteRun>) override { return OkStatus(); }
  StatusOr<size_t> MovePayload(std::span<const iovec> to, size_t limit) override {
    if (!to.empty()) return Receive(to);
    if (scratch_.empty()) scratch_.resize(size_t{64} << 10);
    const iovec away{scratch_.data(), std::min(limit, scratch_.size())};
    return Receive({&away, 1});
  }
  bool FinishPayload(const WriteHeader&) override { return true; }

 private:
  std::vector<char> scratch_;  // receives discarded payload
};

}  // namespace

StatusOr<std::unique_ptr<Transport>> TcpTransport::Create(
    const TransportOptions& options, Dma* dma, std::function<void(std::string_view)> log) {
  BATON_ASSIGN_OR_RETURN(UniqueFd epoll, MakeEpoll());
  BATON_ASSIGN_OR_RETURN(UniqueFd work_left, MakeEventFd());
  return std::unique_ptr<Transport>(
      new TcpTransport(options, dma, std::move(log), std::move(epoll), std::move(work_left)));
}

TransportCaps TcpTransport::caps() const {
  TransportCaps caps = FrameTransport::caps();
  if (dma_ != nullptr) caps.max_op_bytes = StagingBuffers::kBufferBytes;
  return caps;
}

StatusOr<std::unique_ptr<Region>> TcpTransport::Register(const Buffer& buffer) {
  if (buffer.kind() != MemoryKind::kHost && dma_ == nullptr) {
    return InvalidArgument(
        "tcp moves a GPU's memory only through the GPU's DMA interface, which is missing");
  }
  return windows_.Add(buffer);
}

StatusOr<std::string> TcpTransport::Listen() {
  BATON_ASSIGN_OR_RETURN(TcpAddress address, ParseTcpAddress(options_.listen_address));
  UniqueFd socket(
      ::socket(address.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket.valid()) return SocketError("socket for", address);
  SetOption(socket.get(), SOL_SOCKET, SO_REUSEADDR, 1);
  // Set before listen: accepted sockets inherit it, and offer a large window from the start.
  EnlargeBuffer(socket.get(), SO_RCVBUF, "/proc/sys/net/core/rmem_max");
  if (::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address.storage), address.length) !=
      0) {
    return SocketError("bind", address);
  }
  if (::listen(socket.get(), kBacklog) != 0) return SocketError("listen on", address);
  ::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address.storage), &address.length);
  if (!options_.advertise_host.empty()) {
    const bool is_v6 = options_.advertise_host.find(':') != std::string::npos;
    BATON_ASSIGN_OR_RETURN(address,
                           ParseTcpAddress(fmt::format("{}{}{}:{}",
                                                       is_v6 ? "[" : "",
                                                       options_.advertise_host,
                                                       is_v6 ? "]" : "",
                                                       address.port())));
  } else if (address.is_wildcard()) {
    address = OwnAddress(address.storage.ss_family, address.port());
  }
  Serve(std::move(socket),
        [this](UniqueFd accepted, Time now) { return Accept(std::move(accepted), now); });
  return std::string(kDescriptorVersion) + address.ToString();
}

StatusOr<std::unique_ptr<PeerConnection>> TcpTransport::Accept(UniqueFd socket, Time now) {
  Tune(socket.get());
  TcpAddress peer;
  peer.length = sizeof(peer.storage);
  if (::getpeername(socket.get(), reinterpret_cast<sockaddr*>(&peer.storage), &peer.length) != 0) {
    return MakeStatus(StatusCode::kUnavailable,
                      "the peer closed the connection right after it was accepted");
  }
  Connection::Options options{std::move(socket), peer.ToString()};
  options.dma = dma_;
  options.epoll_fd = epoll_.get();
  options.proofs = options_.proofs;
  return std::make_unique<TcpConnection>(std::move(options), windows_, now);
}

Status TcpTransport::Reaches(std::string_view descriptor) const {
  return ParseDescriptor(descriptor).status();
}

StatusOr<std::unique_ptr<Channel>> TcpTransport::Connect(const Region& local,
                                                         std::string_view descriptor,
                                                         uint32_t peer_region) {
  BATON_ASSIGN_OR_RETURN(const TcpAddress address, ParseDescriptor(descriptor));
  FrameChannel::Options options;
  BATON_ASSIGN_OR_RETURN(options.source, MemoryOf(local));
  options.socket.Reset(
      ::socket(address.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!options.socket.valid()) return SocketError("socket for", address);
  Tune(options.socket.get());
  EnlargeBuffer(options.socket.get(), SO_SNDBUF, "/proc/sys/net/core/wmem_max");
  if (::connect(options.socket.get(),
                reinterpret_cast<const sockaddr*>(&address.storage),
                address.length) != 0 &&
      errno != EINPROGRESS) {
    return SocketError("connect to", address);
  }
  if (options.source.buffer->kind() != MemoryKind::kHost) {
    BATON_ASSIGN_OR_RETURN(options.staging,
                           StagingBuffers::Create(*dma_, *options.source.buffer, epoll_.get()));
  }
  options.epoll_fd = epoll_.get();
  options.preface.kind = PayloadKind::kInline;
  options.preface.region = peer_region;
  options.connect_timeout = options_.connect_timeout;
  if (options_.proofs != nullptr) {
    options.proof = options_.proofs->Make(PeerSide::kDialler, kDataPurpose);
  }
  return std::make_unique<FrameChannel>(std::move(options));
}

}  // namespace baton
