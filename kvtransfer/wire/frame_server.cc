#include "kvtransfer/wire/frame_server.h"

#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "common/base/check.h"
#include "kvtransfer/epoll.h"

namespace baton {
namespace {

constexpr size_t kQuantum = size_t{4} << 20;
constexpr int kMaxAcceptsPerTurn = 64;
constexpr Duration kCheckInterval = std::chrono::milliseconds(500);
constexpr Duration kAcceptPause = std::chrono::milliseconds(200);
constexpr Duration kLinePause = std::chrono::minutes(1);

}  // namespace

FrameServer::FrameServer(UniqueFd listener, int epoll_fd, Options options)
    : listener_(std::move(listener)), epoll_fd_(epoll_fd), options_(std::move(options)) {
  Watch(listener_.get(), false, EPOLL_CTL_ADD);
}

FrameServer::~FrameServer() = default;

void FrameServer::Watch(int fd, bool write, int operation) {
  const Status watched = WatchFd(epoll_fd_, fd, EPOLLIN | (write ? EPOLLOUT : 0u), operation);
  BATON_CHECK(watched.ok(), "{}, operation {} on {}", Message(watched), operation, fd);
}

bool FrameServer::Poll(Time now) {
  if (accept_again_ != Time{} && now >= accept_again_) {
    accept_again_ = Time{};
    Watch(listener_.get(), false, EPOLL_CTL_ADD);
  }
  std::vector<int> ready = std::exchange(unfinished_, {});
  for (const auto& [fd, served] : connections_) {
    if (served.connection->is_landing()) ready.push_back(fd);
  }
  for (const int fd : ready) Serve(fd, now);
  std::array<epoll_event, 64> events;
  const int count =
      ::epoll_wait(epoll_fd_, events.data(), static_cast<int>(events.size()), /*timeout=*/0);
  for (int i = 0; i < count; ++i) {
    const int fd = events[static_cast<size_t>(i)].data.fd;
    if (fd == listener_.get()) {
      AcceptAll(now);
    } else {
      Serve(fd, now);
    }
  }
  if (now >= next_check_) {
    next_check_ = now + kCheckInterval;
    CloseStalled(now);
  }
  return !unfinished_.empty();
}

void FrameServer::AcceptAll(Time now) {
  for (int i = 0; i < kMaxAcceptsPerTurn; ++i) {
    UniqueFd socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!socket.valid()) {
      if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
        LogRepeated(failed_accepts_,
                    now,
                    fmt::format("no new KV data connections for a moment: accept: {}",
                                std::strerror(errno)));
        ::epoll_ctl(epoll_fd_, EPOLL_CTL_DEL, listener_.get(), nullptr);
        accept_again_ = now + kAcceptPause;
      }
      return;
    }
    if (connections_.size() >= options_.max_connections) {
      LogRepeated(
          turned_away_,
          now,
          fmt::format("KV data connection turned away: {} are open already", connections_.size()));
      continue;
    }
    auto connection = options_.accept(std::move(socket), now);
    if (!connection.ok()) {
      LogRepeated(refused_,
                  now,
                  fmt::format("KV data connection refused: {}", Message(connection.status())));
      continue;
    }
    const int fd = (*connection)->fd();
    Watch(fd, false, EPOLL_CTL_ADD);
    connections_[fd] = {*std::move(connection), false};
  }
}

void FrameServer::Serve(int fd, Time now) {
  const auto found = connections_.find(fd);
  if (found == connections_.end()) return;  // a channel's socket, or closed in this turn
  Served& served = found->second;
  const Status status = served.connection->Step(now, kQuantum);
  if (!status.ok()) return Close(fd, status);
  if (served.connection->has_more()) unfinished_.push_back(fd);
  WatchWrites(served);
}

void FrameServer::WatchWrites(Served& served) {
  if (served.connection->wants_write() == served.watches_write) return;
  served.watches_write = !served.watches_write;
  Watch(served.connection->fd(), served.watches_write, EPOLL_CTL_MOD);
}

void FrameServer::Refresh(int fd) {
  const auto found = connections_.find(fd);
  if (found == connections_.end()) return;
  WatchWrites(found->second);
  if (found->second.connection->has_more()) unfinished_.push_back(fd);
}

void FrameServer::CloseStalled(Time now) {
  std::vector<int> stalled;
  for (const auto& [fd, served] : connections_) {
    const Time since = served.connection->stalled_since();
    if (since != kNever && now - since > options_.stall_timeout) stalled.push_back(fd);
  }
  for (const int fd : stalled) {
    const bool silent = connections_[fd].connection->in_preface();
    Close(fd,
          MakeStatus(StatusCode::kDeadlineExceeded,
                     "no progress for {:.1f} s {}",
                     ToSeconds(options_.stall_timeout),
                     silent ? "before the preface" : "in the middle of a frame"));
  }
}

void FrameServer::Close(int fd, const Status& reason) {
  const auto found = connections_.find(fd);
  // PeerProofs has logged why it refused a peer.
  const bool refused =
      reason.code() == StatusCode::kUnauthenticated && found->second.connection->in_preface();
  if (reason.code() != StatusCode::kOutOfRange && !refused) {
    Log(fmt::format("KV data connection from {} closed: {}",
                    found->second.connection->peer(),
                    Message(reason)));
  }
  connections_.erase(found);  // closing the socket removes it from the epoll set
}

void FrameServer::OnWindowClosed(uint64_t key) {
  for (auto& [fd, served] : connections_) {
    served.connection->OnWindowClosed(key);
    WatchWrites(served);
  }
}

void FrameServer::Log(std::string_view line) const {
  if (options_.log) options_.log(line);
}

void FrameServer::LogRepeated(Repeated& problem, Time now, std::string_view line) const {
  ++problem.count;
  if (now < problem.next_line) return;
  problem.next_line = now + kLinePause;
  Log(fmt::format("{} ({} so far)", line, problem.count));
}

}  // namespace baton
