#pragma once

#include <condition_variable>
#include <cstddef>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "common/base/round_robin_queue.h"

namespace baton::router {

// A few threads that run clients' jobs with round-robin between clients: while several clients have
// jobs waiting, one job of each runs before a second job of any, however many a client has posted.
// Jobs are not interrupted. Therefore, if there are several threads, one runs only small jobs, and
// large jobs never occupy all threads. Thread-safe. The destructor drops jobs that have not
// started.
class FairThreads final {
 public:
  // A job with more input bytes than this is large.
  static constexpr size_t kSmallBytes = size_t{64} << 10;

  FairThreads(const std::string& name, size_t count);
  ~FairThreads();

  // Queues `run`, a job of `client` with `bytes` bytes of input.
  void Post(const std::string& client, size_t bytes, std::function<void()> run);

 private:
  using Job = std::function<void()>;

  void Run(bool takes_large);

  std::mutex mutex_;  // guards all members except threads_
  std::condition_variable ready_;
  RoundRobinQueue<std::string, Job> small_;
  RoundRobinQueue<std::string, Job> large_;
  bool stopped_ = false;
  std::vector<std::jthread> threads_;
};

}  // namespace baton::router
