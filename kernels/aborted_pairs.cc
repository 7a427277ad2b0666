#include "kernels/aborted_pairs.h"

#include <chrono>
#include <thread>
#include <utility>

#include "kernels/pair_exchange.h"

namespace baton {
namespace {

constexpr Duration kLookInterval = std::chrono::milliseconds(1);

}  // namespace

AbortedPairs::AbortedPairs(Duration limit) : limit_(limit) {}

AbortedPairs::~AbortedPairs() {
  const SteadyClock clock;
  const Time until = clock.Now() + limit_;
  for (Reap(); size() > 0 && clock.Now() < until; Reap()) {
    std::this_thread::sleep_for(kLookInterval);
  }
  for (auto& communicator : waiting_) (void)communicator.release();
}

void AbortedPairs::Add(std::unique_ptr<PairCommunicator> communicator) {
  const std::lock_guard lock(mutex_);
  if (!communicator->has_ended()) waiting_.push_back(std::move(communicator));
}

void AbortedPairs::Reap() {
  const std::lock_guard lock(mutex_);
  std::erase_if(waiting_, [](const auto& communicator) { return communicator->has_ended(); });
}

size_t AbortedPairs::size() const {
  const std::lock_guard lock(mutex_);
  return waiting_.size();
}

}  // namespace baton
