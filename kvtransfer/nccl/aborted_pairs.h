#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "common/base/clock.h"
#include "kernels/pair_exchange.h"

namespace baton {

// Communicators that were aborted and whose device may still use their staging memory. An abort can
// take seconds, so nothing waits for it but the destructor: an abort that still ran when the
// process ends would use a library and a driver that are being torn down. Owned by a transport; its
// thread only. Destroyed before the PairExchange of the communicators.
class AbortedPairs final {
 public:
  // `limit`: how long the destructor waits for aborts to end. The others, whose device is lost, are
  // left to the end of the process.
  explicit AbortedPairs(Duration limit) : limit_(limit) {}
  ~AbortedPairs();
  AbortedPairs(const AbortedPairs&) = delete;

  // Takes a communicator on which Abort was called.
  void Add(std::unique_ptr<PairCommunicator> communicator);
  // Frees the communicators whose abort has ended.
  void Reap();
  // The number of communicators whose abort had not ended at the last Reap.
  size_t size() const { return waiting_.size(); }

 private:
  const Duration limit_;
  std::vector<std::unique_ptr<PairCommunicator>> waiting_;
};

}  // namespace baton
