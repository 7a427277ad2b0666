#include "kvtransfer/shm/shm_transport.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <optional>
#include <utility>

#include "common/base/hash.h"
#include "common/base/mapped_file.h"

namespace baton {
namespace {

constexpr std::string_view kDescriptorVersion = "1|";
constexpr int kBacklog = 128;

// Tells this machine, since its last start, from all others.
StatusOr<std::string> HostBootId() {
  BATON_ASSIGN_OR_RETURN(std::string id, ReadFile("/proc/sys/kernel/random/boot_id", 128));
  while (!id.empty() && id.back() == '\n') id.pop_back();
  return id;
}

// The address of an abstract socket (unix(7)): it needs no file, and goes with its owner.
struct UnixAddress {
  sockaddr_un storage{};
  socklen_t length = 0;
};

StatusOr<UnixAddress> AbstractAddress(std::string_view name) {
  UnixAddress address;
  if (name.empty() || name.size() > sizeof(address.storage.sun_path) - 1) {
    return InvalidArgument("socket name of {} bytes; 1 to {} are possible",
                           name.size(),
                           sizeof(address.storage.sun_path) - 1);
  }
  address.storage.sun_family = AF_UNIX;
  std::memcpy(address.storage.sun_path + 1, name.data(), name.size());
  address.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return address;
}

StatusOr<UniqueFd> ConnectTo(std::string_view descriptor) {
  const size_t bar = descriptor.find('|', kDescriptorVersion.size());
  if (!descriptor.starts_with(kDescriptorVersion) || bar == std::string_view::npos) {
    return InvalidArgument("shm descriptor '{}' is not '1|host|socket'", descriptor.substr(0, 64));
  }
  BATON_ASSIGN_OR_RETURN(const std::string ours, HostBootId());
  const std::string_view theirs =
      descriptor.substr(kDescriptorVersion.size(), bar - kDescriptorVersion.size());
  if (theirs != ours) {
    return MakeStatus(StatusCode::kUnavailable, "the peer is on another host ({})", theirs);
  }
  BATON_ASSIGN_OR_RETURN(const UnixAddress address, AbstractAddress(descriptor.substr(bar + 1)));
  UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket.valid() ||
      ::connect(
          socket.get(), reinterpret_cast<const sockaddr*>(&address.storage), address.length) != 0) {
    return MakeStatus(StatusCode::kUnavailable,
                      "connect to shm socket '{}': {}",
                      descriptor.substr(bar + 1),
                      std::strerror(errno));
  }
  return socket;
}

// A peer's connection: the payload is copied out of the peer's arena.
class ShmConnection final : public Connection {
 public:
  ShmConnection(UniqueFd socket, std::string peer, WindowTable& windows, Time now)
      : Connection(std::move(socket), std::move(peer), PayloadKind::kMapped, windows, now) {}

 protected:
  Status OnPreface(std::vector<UniqueFd> descriptors) override {
    if (descriptors.size() != 2) {
      return InvalidArgument("the preface came with {} descriptors instead of 2",
                             descriptors.size());
    }
    BATON_ASSIGN_OR_RETURN(Mapping arena, Mapping::Create(descriptors[0], 1, false));
    arena_.emplace(std::move(arena));
    BATON_ASSIGN_OR_RETURN(slots_, SlotTable::Open(descriptors[1]));
    return OkStatus();
  }

  Status BeginPayload(const WriteHeader& header, std::span<const WriteRun> runs) override {
    BATON_RETURN_IF_ERROR(CheckSources(runs, arena_->size()));
    runs_ = runs;
    run_ = 0;
    offset_ = 0;
    live_ = slots_->is_live(header.op);
    return OkStatus();
  }

  StatusOr<size_t> MovePayload(std::span<const iovec> to, size_t limit) override {
    if (to.empty() || !live_) return limit;
    // `to` covers the payload from the cursor on, cut to `limit`; a piece never spans two runs.
    size_t moved = 0;
    for (const iovec& piece : to) {
      const WriteRun& run = runs_[run_];
      std::memcpy(piece.iov_base, arena_->data() + run.source + offset_, piece.iov_len);
      moved += piece.iov_len;
      offset_ += piece.iov_len;
      if (offset_ < run.bytes) continue;
      ++run_;
      offset_ = 0;
    }
    return moved;
  }

  bool FinishPayload(const WriteHeader& header) override {
    return live_ && slots_->Count(header.op);
  }

 private:
  std::optional<Mapping> arena_;
  std::unique_ptr<SlotTable> slots_;
  std::span<const WriteRun> runs_;
  size_t run_ = 0;
  uint64_t offset_ = 0;
  bool live_ = false;
};

}  // namespace

StatusOr<std::unique_ptr<Transport>> ShmTransport::Create(
    const TransportOptions& options, std::function<void(std::string_view)> log) {
  BATON_ASSIGN_OR_RETURN(UniqueFd epoll, MakeEpoll());
  BATON_ASSIGN_OR_RETURN(UniqueFd work_left, MakeEventFd());
  return std::unique_ptr<Transport>(
      new ShmTransport(options, std::move(log), std::move(epoll), std::move(work_left)));
}

TransportCaps ShmTransport::caps() const {
  TransportCaps caps = FrameTransport::caps();
  caps.same_host_only = true;
  return caps;
}

StatusOr<std::unique_ptr<Region>> ShmTransport::Register(const Buffer& buffer) {
  if (buffer.kind() != MemoryKind::kHost) {
    return InvalidArgument("shm moves host memory only");
  }
  if (buffer.shared_fd() >= 0 &&
      ::fcntl(buffer.shared_fd(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0) {
    return windows_.Add(buffer);
  }
  return InvalidArgument(
      "shm needs an arena in a memfd that can be sealed (MFD_ALLOW_SEALING); this one: {}",
      buffer.shared_fd() < 0 ? "private memory" : std::strerror(errno));
}

StatusOr<std::string> ShmTransport::Listen() {
  BATON_ASSIGN_OR_RETURN(const std::string host, HostBootId());
  const std::string name = fmt::format("baton-kv-{:016x}", RandomId());
  BATON_ASSIGN_OR_RETURN(const UnixAddress address, AbstractAddress(name));
  UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket.valid() ||
      ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address.storage), address.length) !=
          0 ||
      ::listen(socket.get(), kBacklog) != 0) {
    return MakeStatus(StatusCode::kUnavailable, "shm socket '{}': {}", name, std::strerror(errno));
  }
  Serve(std::move(socket),
        [this](UniqueFd accepted, Time now) { return Accept(std::move(accepted), now); });
  return fmt::format("{}{}|{}", kDescriptorVersion, host, name);
}

StatusOr<std::unique_ptr<Connection>> ShmTransport::Accept(UniqueFd socket, Time now) {
  // Abstract sockets have no file permissions: only our own user may pass us memory.
  ucred peer{};
  socklen_t length = sizeof(peer);
  if (::getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0 ||
      peer.uid != ::geteuid()) {
    return MakeStatus(StatusCode::kPermissionDenied, "the peer is of user {}", peer.uid);
  }
  return std::make_unique<ShmConnection>(
      std::move(socket), fmt::format("process {}", peer.pid), windows_, now);
}

Status ShmTransport::Reaches(std::string_view descriptor) const {
  return ConnectTo(descriptor).status();
}

StatusOr<std::unique_ptr<Channel>> ShmTransport::Connect(const Region& local,
                                                         std::string_view descriptor,
                                                         uint32_t peer_region) {
  FrameChannel::Options options;
  BATON_ASSIGN_OR_RETURN(options.socket, ConnectTo(descriptor));
  BATON_ASSIGN_OR_RETURN(options.source, MemoryOf(local));
  BATON_ASSIGN_OR_RETURN(options.slots, SlotTable::Create());
  for (const int fd : {options.source.shared_fd, options.slots->fd().get()}) {
    options.descriptors.emplace_back(::fcntl(fd, F_DUPFD_CLOEXEC, 0));
  }
  options.epoll_fd = epoll_.get();
  options.preface.kind = PayloadKind::kMapped;
  options.preface.region = peer_region;
  options.connect_timeout = options_.connect_timeout;
  return std::make_unique<FrameChannel>(std::move(options));
}

}  // namespace baton
