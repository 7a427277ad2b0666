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

// Writes text to a file descriptor on its own thread, so that a full pipe that nobody reads never
// blocks a caller. When the queue is full, the oldest text is dropped and counted. Thread-safe.
class LineWriter final {
 public:
  // Returns the line that is written in place of `count` dropped ones.
  using DropNotice = std::function<std::string(uint64_t count)>;

  // `fd` must stay open while the writer lives. The thread starts with the first Write().
  LineWriter(int fd, size_t max_queued_bytes, DropNotice notice);
  // Writes as much as `fd` accepts without waiting and drops the rest.
  ~LineWriter();
  LineWriter(const LineWriter&) = delete;
  LineWriter& operator=(const LineWriter&) = delete;

  // Queues whole lines, each with its newline. Never blocks.
  void Write(std::string lines);

  // Waits until all text that was queued before this call is written or dropped. False when `limit`
  // passes first.
  bool Flush(Duration limit);
  // Flush() for a signal handler: takes no lock and allocates no memory.
  bool FlushInSignalHandler(Duration limit) const;

  // The number of calls of Write() whose text was not written, because the queue was full or the
  // write failed.
  uint64_t dropped() const { return dropped_; }

 private:
  void Run(const std::stop_token& stop);
  // Takes the next lines from the queue, as many as one write accepts. Adds to `calls` the number
  // of calls of Write() that queued them.
  std::string TakeLocked(uint64_t& calls);
  bool WriteAll(std::string_view text, const std::stop_token& stop) const;

  const int fd_;
  const size_t max_queued_bytes_;
  const DropNotice notice_;

  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::deque<std::string> queue_;
  size_t queued_bytes_ = 0;
  uint64_t dropped_unsaid_ = 0;        // dropped calls since the last notice
  std::atomic<uint64_t> queued_{0};    // calls of Write()
  std::atomic<uint64_t> finished_{0};  // calls whose text was written or dropped
  std::atomic<uint64_t> dropped_{0};   // calls whose text was dropped
  std::jthread thread_;
};

}  // namespace baton
