#pragma once

#include <atomic>
#include <cstdint>
#include <thread>
#include <type_traits>
#include <vector>

namespace baton {

// The backend's threads: `Run` shares items of work out to `threads` − 1 sleeping workers and the
// calling thread. Items are claimed one by one, so a worker that the system does not run costs
// nothing: the caller then does the items itself, and waits only for items already claimed.
// Workers spin for a few microseconds between jobs of a step and sleep otherwise. `Run` is called
// by one thread at a time.
class ThreadPool final {
 public:
  static constexpr int kMaxThreads = 256;
  static constexpr int64_t kMaxItems = (1 << 16) - 1;

  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  // Threads that take part, the caller included.
  int threads() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls body(item, thread) once for each item in [0, items), 0 ≤ thread < threads(); the caller
  // is thread 0. Returns when all are done. items ≤ kMaxItems.
  template <class Body>
  void Run(int64_t items, const Body& body) {
    if (items <= 1 || workers_.empty()) {
      for (int64_t i = 0; i < items; ++i) body(i, 0);
      return;
    }
    Share(
        items,
        [](const void* context, int64_t item, int thread) {
          (*static_cast<const Body*>(context))(item, thread);
        },
        &body);
  }

  // Wakes the workers ahead of a run of jobs.
  void Wake();

 private:
  using Function = void (*)(const void* context, int64_t item, int thread);
  // Fields of a job. Two alternate, so that a late worker never mixes those of two jobs: it claims
  // an item only if the ticket it read is still the current one.
  struct Job {
    std::atomic<Function> function{nullptr};
    std::atomic<const void*> context{nullptr};
  };

  void Share(int64_t items, Function function, const void* context);
  // Does items of the current job until none is left unclaimed.
  void Work(int thread);
  void WorkerLoop(const std::stop_token& stop, int thread);

  // generation (32 bits) | items (16 bits) | next item to claim (16 bits)
  alignas(64) std::atomic<uint64_t> ticket_{0};
  alignas(64) std::atomic<int32_t> done_{0};
  alignas(64) std::atomic<int32_t> wake_{0};
  std::atomic<int32_t> sleepers_{0};
  Job jobs_[2];
  std::vector<std::jthread> workers_;
};

}  // namespace baton
