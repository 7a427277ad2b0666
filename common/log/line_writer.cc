#include "common/log/line_writer.h"

#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "common/base/thread.h"

namespace baton {
namespace {

constexpr int kPollMillis = 100;  // the longest time until a blocked writer notices the stop token
constexpr long kSignalPollNanos = 1'000'000;

// Starts a thread that blocks all signals, because other threads of the process wait for them.
std::jthread StartWithoutSignals(std::function<void(const std::stop_token&)> body) {
  sigset_t all;
  sigset_t before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  std::jthread thread = StartThread("log", std::move(body));
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return thread;
}

}  // namespace

LineWriter::LineWriter(int fd, size_t max_queued_bytes, DropNotice notice)
    : fd_(fd), max_queued_bytes_(max_queued_bytes), notice_(std::move(notice)) {}

LineWriter::~LineWriter() = default;  // the jthread requests the stop and joins

void LineWriter::Write(std::string lines) {
  std::lock_guard lock(mutex_);
  ++queued_;
  queued_bytes_ += lines.size();
  queue_.push_back(std::move(lines));
  while (queued_bytes_ > max_queued_bytes_) {
    queued_bytes_ -= queue_.front().size();
    queue_.pop_front();
    ++dropped_unsaid_;
    ++dropped_;
    ++finished_;
  }
  if (!thread_.joinable()) {
    thread_ = StartWithoutSignals([this](const std::stop_token& stop) { Run(stop); });
  }
  changed_.notify_all();
}

bool LineWriter::Flush(Duration limit) {
  std::unique_lock lock(mutex_);
  const uint64_t target = queued_;
  return changed_.wait_for(lock, limit, [&] { return finished_ >= target; });
}

bool LineWriter::FlushInSignalHandler(Duration limit) const {
  const uint64_t target = queued_;
  const timespec pause{0, kSignalPollNanos};
  for (Duration waited{}; finished_ < target; waited += std::chrono::nanoseconds(pause.tv_nsec)) {
    if (waited >= limit) return false;
    ::nanosleep(&pause, nullptr);
  }
  return true;
}

void LineWriter::Run(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  while (changed_.wait(lock, stop, [&] { return !queue_.empty(); })) {
    uint64_t calls = 0;
    const std::string text = TakeLocked(calls);
    lock.unlock();
    if (!WriteAll(text, stop)) dropped_ += calls;
    lock.lock();
    finished_ += calls;
    changed_.notify_all();
  }
}

std::string LineWriter::TakeLocked(uint64_t& calls) {
  std::string text;
  if (dropped_unsaid_ > 0) text = notice_(std::exchange(dropped_unsaid_, 0));
  // A write of up to PIPE_BUF bytes to a pipe is atomic, so that the lines of processes that share
  // the pipe do not mix.
  while (!queue_.empty() && (calls == 0 || text.size() + queue_.front().size() <= PIPE_BUF)) {
    text += queue_.front();
    queued_bytes_ -= queue_.front().size();
    queue_.pop_front();
    ++calls;
  }
  return text;
}

// Polls before each write, so that a stop is noticed even when nobody reads the pipe.
bool LineWriter::WriteAll(std::string_view text, const std::stop_token& stop) const {
  while (!text.empty()) {
    pollfd waiting{fd_, POLLOUT, 0};
    const int ready = ::poll(&waiting, 1, stop.stop_requested() ? 0 : kPollMillis);
    if (ready == 0 && stop.stop_requested()) return false;
    if (ready <= 0) continue;
    const ssize_t written = ::write(fd_, text.data(), std::min<size_t>(text.size(), PIPE_BUF));
    if (written < 0 && errno != EINTR && errno != EAGAIN) return false;
    if (written > 0) text.remove_prefix(static_cast<size_t>(written));
  }
  return true;
}

}  // namespace baton
