#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "common/base/mailbox.h"

namespace baton::router {

// A few threads that run jobs. The key of a job selects its thread, so jobs with the same key run
// one after another, in the order of Post. Thread-safe. Jobs must not block for long; their
// exceptions are logged. The destructor drops jobs that have not started.
class KeyedThreads final {
 public:
  KeyedThreads(const std::string& name, size_t count);
  ~KeyedThreads();

  struct Job {
    uint64_t key = 0;
    std::function<void()> run;
  };

  // Wakes each thread once for all of its jobs.
  void Post(std::vector<Job> jobs);
  size_t count() const { return lanes_.size(); }

 private:
  struct Lane {
    Mailbox<std::function<void()>> mailbox;
    std::jthread thread;
  };
  static void Run(Lane& lane);

  std::vector<std::unique_ptr<Lane>> lanes_;
};

}  // namespace baton::router
