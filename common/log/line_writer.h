#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>

#include "common/base/clock.h"

namespace baton {

// Writes text to a file descriptor on a thread of its own, so that a reader that does not read (a
// full pipe) never blocks a caller. Text that does not fit into the queue is dropped, the oldest
// first, and counted. Thread-safe.
class LineWriter final {
 public:
  // The line that is written in place of `count` dropped ones.
  using DropNotice = std::function<std::string(uint64_t count)>;

  // `fd` must stay open while the writer lives. The thread starts with the first Write().
  LineWriter(int fd, size_t max_queued_bytes, DropNotice notice);
  // Writes what `fd` takes at once, drops the rest.
  ~LineWriter();
  LineWriter(const LineWriter&) = delete;
  LineWriter& operator=(const LineWriter&) = delete;

  // Queues whole lines, each with its newline. Never blocks.
  void Write(std::string lines);

  // Waits until all that was queued before is written or dropped; false when `limit` passes first.
  bool Flush(Duration limit);
  // Flush() for a signal handler: it takes no lock, and allocates nothing.
  bool FlushInSignalHandler(Duration limit) const;

  // Calls of Write() whose text was not written: the queue was full, or the write failed.
  uint64_t dropped() const { return dropped_; }

 private:
  void Run(const std::stop_token& stop);
  // The next lines, as many as one write takes; the number of calls they come from in `calls`.
  std::string TakeLocked(uint64_t& calls);
  bool WriteAll(std::string_view text, const std::stop_token& stop) const;

  const int fd_;
  const size_t max_queued_bytes_;
  const DropNotice notice_;

  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::deque<std::string> queue_;
  size_t queued_bytes_ = 0;
  uint64_t dropped_unsaid_ = 0;        // since the last notice
  std::atomic<uint64_t> queued_{0};    // calls so far
  std::atomic<uint64_t> finished_{0};  // of them, written or dropped
  std::atomic<uint64_t> dropped_{0};
  std::jthread thread_;
};

}  // namespace baton
