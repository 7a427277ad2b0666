#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "kernels/collective.h"

namespace baton {

// A group whose ranks are threads of this process. Checks that all ranks call the same operation
// with the same sizes. Outlives its ranks; thread-safe.
class ThreadGroup final {
 public:
  explicit ThreadGroup(int size);

  int size() const { return static_cast<int>(ranks_.size()); }
  Collective* rank(int rank) { return ranks_[static_cast<size_t>(rank)].get(); }
  // The calls of all ranks fail from the `calls`-th call of any rank on.
  void FailAfter(int calls, const Status& error);
  // Every call fails from now on.
  void Break(const Status& error);
  // The error that all calls return; OK before.
  Status status() const;
  // The calls that rank 0 has made.
  int calls() const;

 private:
  friend class ThreadRank;
  // What one rank gives to a call that all ranks make.
  struct Offer {
    const char* operation = "";
    CollectiveRows rows;
    std::vector<size_t> ends;
  };

  // Runs `copy` on every rank, while the memory of all ranks' offers is complete and unchanged.
  Status Meet(int rank, Offer offer, const std::function<void(std::span<const Offer>)>& copy);
  // Waits until all ranks have come.
  Status Wait(std::unique_lock<std::mutex>& lock);
  Status Count(int rank);
  Status Send(int from, int to, std::span<const std::byte> bytes);
  Status Receive(int from, int to, std::span<std::byte> bytes);

  std::vector<std::unique_ptr<Collective>> ranks_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Offer> offers_;
  std::vector<int> calls_;
  int waiting_ = 0;
  int round_ = 0;
  int calls_left_ = -1;  // negative: no failure is planned
  Status planned_;
  Status broken_;
  std::map<std::pair<int, int>, std::deque<std::vector<std::byte>>> messages_;
};

}  // namespace baton
