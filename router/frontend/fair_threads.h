#pragma once

#include <condition_variable>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "common/base/round_robin_queue.h"

namespace baton::router {

// A few threads that run clients' jobs with round-robin between clients: while several clients have
// jobs waiting, one job of each runs before a second job of any, however many a client has posted.
// Jobs are not interrupted. Therefore, if there are several threads, one runs only small jobs, and
// large jobs never occupy all threads. Thread-safe.
class FairThreads final {
 public:
  // A job with more input bytes than this is large.
  static constexpr size_t kSmallBytes = size_t{64} << 10;

  FairThreads(const std::string& name, size_t count);
  ~FairThreads();

  // Queues `run`, a job of `client` with `bytes` bytes of input. False after Stop; the job is then
  // dropped.
  bool Post(const std::string& client, size_t bytes, std::function<void()> run);

  // Drops the jobs that have not started, and waits for those that run. May be called again.
  void Stop();

 private:
  using Job = std::function<void()>;

  struct Worker {
    bool takes_large = false;
    bool idle = false;  // guarded by mutex_
    bool ran_large = false;
    std::condition_variable wake;
    std::jthread thread;
  };

  void Run(Worker& worker);
  std::optional<Job> Next(Worker& worker);
  // An idle thread that takes such a job, which is then no longer idle; or null.
  Worker* TakeIdle(bool large);

  std::mutex mutex_;
  RoundRobinQueue<std::string, Job> small_;  // guarded by mutex_
  RoundRobinQueue<std::string, Job> large_;  // guarded by mutex_
  bool stopped_ = false;                     // guarded by mutex_
  std::vector<std::unique_ptr<Worker>> workers_;
};

}  // namespace baton::router
