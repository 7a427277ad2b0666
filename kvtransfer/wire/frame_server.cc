#include "kvtransfer/wire/frame_server.h"

#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "common/base/check.h"
#include "kvtransfer/loop/epoll.h"

namespace baton {
namespace {

constexpr size_t kQuantum = size_t{4} << 20;
constexpr int kMaxAcceptsPerTurn = 64;
constexpr Duration kCheckInterval = std::chrono::milliseconds(500);
constexpr Duration kAcceptPause = std::chrono::milliseconds(200);
constexpr Duration kLinePause = std::chrono::minutes(1);
constexpr int64_t kNanosPerSecond = 1'000'000'000;

}  // namespace

FrameServer::FrameServer(UniqueFd listener, int epoll_fd, Options options)
    : listener_(std::move(listener)),
      epoll_fd_(epoll_fd),
      options_(std::move(options)),
      pacer_(options_.bytes_per_second),
      timer_(::timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC)) {
  BATON_CHECK(timer_.valid(), "timerfd: {}", std::strerror(errno));
  Watch(listener_.get(), true, false, EPOLL_CTL_ADD);
  Watch(timer_.get(), true, false, EPOLL_CTL_ADD);
}

FrameServer::~FrameServer() = default;

void FrameServer::Watch(int fd, bool read, bool write, int operation) {
  const uint32_t events = (read ? EPOLLIN : 0u) | (write ? EPOLLOUT : 0u);
  const Status watched = WatchFd(epoll_fd_, fd, events, operation);
  BATON_CHECK(watched.ok(), "{}, operation {} on {}", Message(watched), operation, fd);
}

bool FrameServer::Poll(Time now) {
  if (accept_again_ != Time{} && now >= accept_again_) {
    accept_again_ = Time{};
    Watch(listener_.get(), true, false, EPOLL_CTL_ADD);
  }
  ServePaced(now);
  for (const int fd : TakeReady(now)) Serve(fd, now);
  if (now >= next_check_) {
    next_check_ = now + kCheckInterval;
    CloseStalled(now);
  }
  return !unfinished_.empty();
}

std::set<int> FrameServer::TakeReady(Time now) {
  std::set<int> ready = std::exchange(unfinished_, {});
  for (const auto& [fd, served] : connections_) {
    if (served.connection->is_landing()) ready.insert(fd);
  }
  std::array<epoll_event, 64> events;
  const int count =
      ::epoll_wait(epoll_fd_, events.data(), static_cast<int>(events.size()), /*timeout=*/0);
  for (int i = 0; i < count; ++i) {
    const int fd = events[static_cast<size_t>(i)].data.fd;
    if (fd == listener_.get()) {
      AcceptAll(now);
    } else if (fd == timer_.get()) {
      uint64_t expirations = 0;
      (void)!::read(fd, &expirations, sizeof(expirations));
    } else {
      ready.insert(fd);
    }
  }
  return ready;
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
    if (connections_.size() >= options_.max_connections && !CloseOldestStranger(now)) {
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
    Watch(fd, true, false, EPOLL_CTL_ADD);
    connections_[fd] = {*std::move(connection), false, false, now};
  }
}

bool FrameServer::CloseOldestStranger(Time now) {
  auto oldest = connections_.end();
  for (auto it = connections_.begin(); it != connections_.end(); ++it) {
    if (!it->second.connection->in_preface()) continue;
    if (oldest == connections_.end() || it->second.accepted < oldest->second.accepted) oldest = it;
  }
  if (oldest == connections_.end()) return false;
  LogRepeated(
      gave_way_,
      now,
      fmt::format("KV data connection from {} without a preface closed for a new one: {} are "
                  "open",
                  oldest->second.connection->peer(),
                  connections_.size()));
  std::erase(paced_, oldest->first);
  connections_.erase(oldest);
  return true;
}

void FrameServer::Serve(int fd, Time now) {
  const auto found = connections_.find(fd);
  if (found == connections_.end()) return;  // a channel's socket, or closed in this turn
  Served& served = found->second;
  const uint64_t allowed = pacer_.Allowance(now);
  const Status status = served.connection->Step(now, std::min<uint64_t>(kQuantum, allowed));
  pacer_.Spend(served.connection->moved());
  if (!status.ok()) return Close(fd, status);
  const bool must_wait = pacer_.Allowance(now) == 0;
  if (must_wait && !served.is_paced) {
    served.is_paced = true;
    Watch(fd, false, served.watches_write, EPOLL_CTL_MOD);
    paced_.push_back(fd);
    SetTimer(now);
  } else if (!must_wait && served.connection->has_more()) {
    unfinished_.insert(fd);
  }
  WatchWrites(served);
}

void FrameServer::ServePaced(Time now) {
  if (paced_.empty() || pacer_.Allowance(now) == 0) return;
  for (size_t left = paced_.size(); left > 0 && pacer_.Allowance(now) > 0; --left) {
    const int fd = paced_.front();
    paced_.pop_front();
    const auto found = connections_.find(fd);
    if (found == connections_.end()) continue;
    found->second.is_paced = false;
    Watch(fd, true, found->second.watches_write, EPOLL_CTL_MOD);
    Serve(fd, now);
  }
  if (!paced_.empty()) SetTimer(now);
}

void FrameServer::SetTimer(Time now) const {
  const auto wait = std::max<int64_t>(
      1, std::chrono::duration_cast<std::chrono::nanoseconds>(pacer_.next() - now).count());
  itimerspec once{};
  once.it_value = {wait / kNanosPerSecond, wait % kNanosPerSecond};
  ::timerfd_settime(timer_.get(), 0, &once, nullptr);
}

void FrameServer::WatchWrites(Served& served) {
  if (served.connection->wants_write() == served.watches_write) return;
  served.watches_write = !served.watches_write;
  Watch(served.connection->fd(), !served.is_paced, served.watches_write, EPOLL_CTL_MOD);
}

void FrameServer::Refresh(int fd) {
  const auto found = connections_.find(fd);
  if (found == connections_.end()) return;
  WatchWrites(found->second);
  if (found->second.connection->has_more()) unfinished_.insert(fd);
}

void FrameServer::CloseStalled(Time now) {
  std::vector<int> stalled;
  for (const auto& [fd, served] : connections_) {
    // A stranger who sends single bytes slowly gets no more time.
    const bool stranger = served.connection->in_preface();
    const Time since = stranger ? served.accepted : served.connection->stalled_since();
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
  std::erase(paced_, fd);     // the number may soon be another connection's
  connections_.erase(found);  // closing the socket removes it from the epoll set
}

void FrameServer::OnWindowOpened(const WriteWindow& window) {
  for (auto& [fd, served] : connections_) {
    served.connection->OnWindowOpened(window);
    WatchWrites(served);
  }
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
