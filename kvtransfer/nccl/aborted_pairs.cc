#include "kvtransfer/nccl/aborted_pairs.h"

#include <chrono>
#include <thread>
#include <utility>

namespace baton {
namespace {

constexpr Duration kLookInterval = std::chrono::milliseconds(1);

}  // namespace

AbortedPairs::~AbortedPairs() {
  const SteadyClock clock;
  const Time until = clock.Now() + limit_;
  for (Reap(); size() > 0 && clock.Now() < until; Reap()) {
    std::this_thread::sleep_for(kLookInterval);
  }
  for (auto& communicator : waiting_) (void)communicator.release();
}

void AbortedPairs::Add(std::unique_ptr<PairCommunicator> communicator) {
  if (!communicator->has_ended()) waiting_.push_back(std::move(communicator));
}

void AbortedPairs::Reap() {
  std::erase_if(waiting_, [](const auto& communicator) { return communicator->has_ended(); });
}

}  // namespace baton
