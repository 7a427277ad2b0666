#include "kvtransfer/cuda_ipc/ipc_receiver.h"

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "common/base/check.h"
#include "kvtransfer/epoll.h"
#include "kvtransfer/wire/local_socket.h"

namespace baton {
namespace {

// Busy-poll this long after bytes landed, for the bytes that follow. The copies of one operation
// take a tenth of this time.
constexpr Duration kLongestPolling = std::chrono::milliseconds(1);

// The most arrivals that may wait to be taken: a note among them can be 100 kB.
constexpr size_t kMaxArrivals = 256;

void Watch(int epoll_fd, int fd) {
  const Status watched = WatchFd(epoll_fd, fd);
  BATON_CHECK(watched.ok(), "{}", Message(watched));
}

// Calls the kernel directly, because glibc 2.36 does not declare pidfd_open for C++. -1 on failure.
int OpenProcess(pid_t process) {
  return process > 0 ? static_cast<int>(::syscall(SYS_pidfd_open, process, 0)) : -1;
}

bool HasEnded(const UniqueFd& process) {
  pollfd state{process.get(), POLLIN, 0};
  return ::poll(&state, 1, 0) == 1;
}

}  // namespace

IpcReceiver::IpcReceiver(WindowTable& windows,
                         Dma& dma,
                         std::unique_ptr<DmaQueue> queue,
                         Options options)
    : windows_(windows),
      dma_(dma),
      options_(std::move(options)),
      grants_(options_.fence_timeout),
      queue_(std::move(queue)) {
  Watch(options_.epoll_fd, queue_->wait_fd());
}

StatusOr<std::unique_ptr<PeerConnection>> IpcReceiver::Accept(UniqueFd socket, Time now) {
  BATON_ASSIGN_OR_RETURN(const pid_t process, LocalPeer(socket));
  // If a peer does not answer, only the end of its process proves that it writes no more. A process
  // whose end cannot be watched therefore gets no window.
  UniqueFd process_fd(OpenProcess(process));
  if (!process_fd.valid()) {
    return MakeStatus(StatusCode::kUnavailable,
                      "process {} cannot be watched: {}",
                      process,
                      process > 0 ? std::strerror(errno) : "it is in another pid namespace");
  }
  const uint64_t id = next_peer_++;
  peers_[id] = {process, std::move(process_fd), nullptr};
  return std::make_unique<IpcConnection>(
      std::move(socket), fmt::format("process {}", process), id, *this, now);
}

void IpcReceiver::OnConnected(uint64_t peer, IpcConnection* connection) {
  peers_.at(peer).connection = connection;
}

void IpcReceiver::OnGone(uint64_t id, bool drained) {
  Peer& peer = peers_.at(id);
  peer.connection = nullptr;
  if (drained || !grants_.holds_any(id) || HasEnded(peer.process_fd)) {
    peers_.erase(id);
    grants_.OnDrained(id);
    return ReportClosed();
  }
  if (options_.log) {
    options_.log(
        fmt::format("the KV data connection of process {} closed, but the process may still write: "
                    "waiting for it to exit",
                    peer.process));
  }
  Watch(options_.epoll_fd, peer.process_fd.get());
}

void IpcReceiver::OnDrained(uint64_t peer, uint64_t key) {
  grants_.OnDrained(peer, key);
  ReportClosed();
}

StatusOr<std::string> IpcReceiver::ExportOf(uint32_t region) const {
  const WindowTable::Memory* memory = windows_.Find(region);
  if (memory == nullptr) {
    return InvalidArgument("the peer wants to write region {}, which is unknown", region);
  }
  return dma_.Export(*memory->buffer);
}

const WriteWindow* IpcReceiver::Give(uint64_t peer, uint64_t key, uint32_t region) {
  const WriteWindow* window = windows_.FindWindow(key);
  if (window == nullptr || window->region != region) return nullptr;
  grants_.Give(peer, key);
  has_moved_ = true;
  return window;
}

Status IpcReceiver::OnLanded(uint64_t peer, uint32_t region, const IpcFrame& frame) {
  const IpcHeader& header = frame.header;
  has_moved_ = true;
  if (!grants_.holds(peer, header.key)) {
    return MakeStatus(StatusCode::kNotFound, "the peer was not given such a write window");
  }
  Status allowed = windows_.CheckWrite(header.key, region, frame.runs);
  if (!allowed.ok()) {
    const bool outside = allowed.code() == StatusCode::kPermissionDenied;
    if (outside && options_.log) {
      options_.log(fmt::format("process {} wrote into memory that it was not given: {}",
                               peers_.at(peer).process,
                               Message(allowed)));
    }
    return allowed;
  }
  Landed landed;
  landed.peer = peer;
  landed.op = header.op;
  landed.arrival.window_key = header.key;
  landed.arrival.region = region;
  landed.arrival.tag = header.tag;
  landed.arrival.bytes = header.bytes;
  for (const WriteRun& run : frame.runs) {
    landed.arrival.ranges.push_back({run.destination, run.bytes});
  }
  if (header.granule == 0) {
    Count(std::move(landed), OkStatus());
    return OkStatus();
  }
  const uint64_t id = next_dma_++;
  BATON_RETURN_IF_ERROR(
      queue_->Checksum(id, *windows_.Find(region)->buffer, landed.arrival.ranges, header.granule));
  summing_[id] = std::move(landed);
  return OkStatus();
}

bool IpcReceiver::is_behind() const {
  return windows_.arrivals() >= kMaxArrivals;
}

void IpcReceiver::OnNote(uint64_t peer, uint32_t region, const IpcFrame& frame) {
  const uint64_t key = frame.header.key;
  if (!grants_.holds(peer, key) || windows_.FindWindow(key) == nullptr) return;
  Arrival note;
  note.kind = Arrival::Kind::kNote;
  note.window_key = key;
  note.region = region;
  note.note = frame.text;
  windows_.Report(std::move(note));
}

void IpcReceiver::Count(Landed landed, const Status& status) {
  Status verdict = status;
  if (verdict.ok() && windows_.FindWindow(landed.arrival.window_key) == nullptr) {
    verdict = MakeStatus(StatusCode::kAborted, "the write window was closed");
  }
  if (verdict.ok()) windows_.Report(std::move(landed.arrival));
  const auto peer = peers_.find(landed.peer);
  if (peer == peers_.end() || peer->second.connection == nullptr) return;
  peer->second.connection->Acknowledge(landed.op, verdict);
}

bool IpcReceiver::CloseWindow(uint64_t key) {
  const WriteWindow* window = windows_.FindWindow(key);
  if (window == nullptr) return false;
  const uint32_t region = window->region;
  windows_.Remove(key);
  grants_.Close(key, region);
  ReportClosed();
  return true;
}

void IpcReceiver::TakeChecksums(FrameServer& server) {
  std::array<DmaDone, 16> done;
  size_t count = 0;
  do {
    count = queue_->Poll(done);
    for (DmaDone& end : std::span(done).first(count)) {
      auto node = summing_.extract(end.id);
      const auto peer = peers_.find(node.mapped().peer);
      node.mapped().arrival.checksums = std::move(end.checksums);
      Count(std::move(node.mapped()), end.status);
      if (peer != peers_.end() && peer->second.connection != nullptr) {
        server.Refresh(peer->second.connection->fd());
      }
    }
  } while (count == done.size());
}

void IpcReceiver::TakeEndedProcesses() {
  std::vector<uint64_t> ended;
  for (const auto& [id, peer] : peers_) {
    if (peer.connection == nullptr && HasEnded(peer.process_fd)) ended.push_back(id);
  }
  for (const uint64_t id : ended) {
    peers_.erase(id);
    grants_.OnDrained(id);
  }
}

bool IpcReceiver::Poll(Time now, FrameServer& server) {
  if (std::exchange(has_moved_, false)) moved_ = now;
  TakeChecksums(server);
  TakeEndedProcesses();
  grants_.OnTime(now);
  ReportClosed();
  const bool wants_poll = now < moved_ + kLongestPolling;
  if (!wants_poll) queue_->WatchEnds();
  return wants_poll;
}

void IpcReceiver::ReportClosed() {
  for (Arrival& arrival : grants_.TakeArrivals()) windows_.Report(std::move(arrival));
}

}  // namespace baton
