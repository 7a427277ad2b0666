#include "kernels/thread_pool.h"

#include <algorithm>
#include <chrono>

#include <fmt/format.h>

#include "common/base/check.h"
#include "common/base/thread.h"

namespace baton {
namespace {

constexpr uint64_t kItemMask = (1 << 16) - 1;
constexpr auto kWorkerSpin = std::chrono::microseconds(30);
constexpr auto kCallerSpin = std::chrono::microseconds(100);

uint64_t Generation(uint64_t ticket) {
  return ticket >> 32;
}
uint64_t Items(uint64_t ticket) {
  return (ticket >> 16) & kItemMask;
}
uint64_t Next(uint64_t ticket) {
  return ticket & kItemMask;
}

// Tells the processor that this is a spin loop.
void Relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Waits actively until `ready()` or until `limit` passes; says whether it is ready.
template <class Ready, class Limit>
bool SpinUntil(const Ready& ready, Limit limit) {
  const auto end = std::chrono::steady_clock::now() + limit;
  do {
    for (int i = 0; i < 32; ++i) {
      if (ready()) return true;
      Relax();
    }
  } while (std::chrono::steady_clock::now() < end);
  return ready();
}

}  // namespace

ThreadPool::ThreadPool(int threads) {
  BATON_CHECK(threads >= 1 && threads <= kMaxThreads, "{} threads", threads);
  for (int i = 1; i < threads; ++i) {
    workers_.push_back(StartThread(
        fmt::format("cpu-{}", i), [this, i](const std::stop_token& stop) { WorkerLoop(stop, i); }));
  }
}

ThreadPool::~ThreadPool() {
  for (std::jthread& worker : workers_) worker.request_stop();
  wake_.fetch_add(1);
  wake_.notify_all();
}

void ThreadPool::Wake() {
  if (sleepers_.load() == 0) return;
  wake_.fetch_add(1);
  wake_.notify_all();
}

void ThreadPool::Share(int64_t items, Function function, const void* context) {
  BATON_CHECK(items <= kMaxItems, "{} items", items);
  const uint64_t generation = Generation(ticket_.load(std::memory_order_relaxed)) + 1;
  Job& job = jobs_[generation & 1];
  job.function.store(function, std::memory_order_relaxed);
  job.context.store(context, std::memory_order_relaxed);
  done_.store(0, std::memory_order_relaxed);
  // Sequentially consistent with the worker's count of sleepers: either it sees this ticket, or
  // Wake sees it asleep.
  ticket_.store(generation << 32 | static_cast<uint64_t>(items) << 16);
  Wake();
  Work(0);
  const auto all_done = [&] { return done_.load(std::memory_order_acquire) == items; };
  if (SpinUntil(all_done, kCallerSpin)) return;
  for (int32_t done = done_.load(); done != items; done = done_.load()) done_.wait(done);
}

void ThreadPool::Work(int thread) {
  uint64_t ticket = ticket_.load();
  const Job& job = jobs_[Generation(ticket) & 1];
  const uint64_t generation = Generation(ticket);
  const Function function = job.function.load(std::memory_order_relaxed);
  const void* context = job.context.load(std::memory_order_relaxed);
  int32_t computed = 0;
  while (Generation(ticket) == generation && Next(ticket) < Items(ticket)) {
    if (!ticket_.compare_exchange_weak(ticket, ticket + 1)) continue;
    function(context, static_cast<int64_t>(Next(ticket)), thread);
    ++computed;
    ticket = ticket_.load();
  }
  // Once for all items: all threads write to this cache line.
  if (computed == 0) return;
  const auto items = static_cast<int32_t>(Items(ticket));
  if (done_.fetch_add(computed, std::memory_order_acq_rel) + computed == items && thread != 0) {
    done_.notify_one();
  }
}

void ThreadPool::WorkerLoop(const std::stop_token& stop, int thread) {
  uint64_t seen = 0;
  while (!stop.stop_requested()) {
    const auto news = [&] { return Generation(ticket_.load()) != seen; };
    if (!SpinUntil(news, kWorkerSpin)) {
      const int32_t wake = wake_.load();
      sleepers_.fetch_add(1);
      if (!news() && !stop.stop_requested()) wake_.wait(wake);
      sleepers_.fetch_sub(1);
      continue;
    }
    seen = Generation(ticket_.load());
    Work(thread);
  }
}

}  // namespace baton
