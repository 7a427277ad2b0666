#pragma once

#include <atomic>
#include <cstdint>
#include <thread>
#include <type_traits>
#include <vector>

namespace baton {

// The threads of the CPU backend. `Run` distributes items of work to `threads` − 1 worker threads
// and the calling thread. Items are claimed one by one, so a worker thread that the system does not
// schedule costs nothing: the caller computes the items itself, and waits only for threads that
// have claimed some. Worker threads spin for 30 µs between the jobs of a step and sleep otherwise.
// `Run` is called by one thread at a time.
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

  // Calls body(item, thread) once for each item in [0, items), with 0 ≤ thread < threads(); the
  // caller is thread 0. Returns when all items are done. `items` must be ≤ kMaxItems.
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

  // Wakes the worker threads before a series of jobs.
  void Wake();

 private:
  using Function = void (*)(const void* context, int64_t item, int thread);
  // The function of a job. Two Jobs alternate, so that a late worker thread never mixes the fields
  // of two jobs: it claims an item only if the ticket that it read is still the current one.
  struct Job {
    std::atomic<Function> function{nullptr};
    std::atomic<const void*> context{nullptr};
  };

  void Share(int64_t items, Function function, const void* context);
  // Claims and computes items of the current job until all are claimed.
  void Work(int thread);
  void WorkerLoop(const std::stop_token& stop, int thread);

  // generation (32 bits) | items (16 bits) | next item to claim (16 bits). Its store releases the
  // fields of the job to the threads that load it. Every end of items is a release in done_, whose
  // acquire lets the caller read the results and change the fields (docs/memory_ordering.md).
  alignas(64) std::atomic<uint64_t> ticket_{0};
  alignas(64) std::atomic<int32_t> done_{0};
  alignas(64) std::atomic<int32_t> wake_{0};
  std::atomic<int32_t> sleepers_{0};
  Job jobs_[2];
  std::vector<std::jthread> workers_;
};

}  // namespace baton
