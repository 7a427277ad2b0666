#include "kvtransfer/shm/shm_transport.h"

#include <fcntl.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

#include "common/base/hash.h"
#include "common/base/local_socket.h"
#include "kvtransfer/wire/connection.h"
#include "kvtransfer/wire/slot_table.h"

namespace baton {
namespace {

constexpr std::string_view kDescriptorVersion = "1|";

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
  return ConnectLocal(descriptor.substr(bar + 1), SOCK_STREAM);
}

// The connection of one peer. Copies payloads out of the peer's arena.
class ShmConnection final : public Connection {
 public:
  ShmConnection(UniqueFd socket, std::string peer, WindowTable& windows, Time now)
      : Connection({std::move(socket), std::move(peer), PayloadKind::kMapped}, windows, now) {}

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

  StatusOr<size_t> MovePayload(std::span<const iovec> to,
                               size_t limit,
                               GranuleHasher* hasher) override {
    if (to.empty() || !live_) return limit;
    // `to` covers the payload from the current position on, at most `limit` bytes; an entry never
    // spans two runs.
    size_t moved = 0;
    for (const iovec& part : to) {
      const WriteRun& run = runs_[run_];
      auto* const place = static_cast<std::byte*>(part.iov_base);
      const std::byte* const source = arena_->data() + run.source + offset_;
      if (hasher != nullptr) {
        hasher->Copy(place, {source, part.iov_len});
      } else {
        std::memcpy(place, source, part.iov_len);
      }
      moved += part.iov_len;
      offset_ += part.iov_len;
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
  BATON_ASSIGN_OR_RETURN(UniqueFd socket, ListenLocal(name, SOCK_STREAM));
  Serve(std::move(socket),
        [this](UniqueFd accepted, Time now) { return Accept(std::move(accepted), now); });
  return fmt::format("{}{}|{}", kDescriptorVersion, host, name);
}

StatusOr<std::unique_ptr<PeerConnection>> ShmTransport::Accept(UniqueFd socket, Time now) {
  BATON_ASSIGN_OR_RETURN(const pid_t process, LocalPeer(socket));
  return std::make_unique<ShmConnection>(
      std::move(socket), fmt::format("process {}", process), windows_, now);
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
