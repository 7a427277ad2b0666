#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

#include "common/base/clock.h"

namespace baton {

class PairCommunicator;

// Communicators that were aborted and whose device may still use their staging memory. An abort can
// take seconds, so nothing waits for it but the destructor. Owned by a PairExchange, which outlives
// the transports: an abort that still ran when the process ends would use a library and a driver
// that are being torn down. Thread-safe.
class AbortedPairs final {
 public:
  // `limit`: how long the destructor waits for aborts to end. The others, whose device is lost, are
  // left to the end of the process.
  explicit AbortedPairs(Duration limit);
  ~AbortedPairs();
  AbortedPairs(const AbortedPairs&) = delete;

  // Takes a communicator on which Abort was called.
  void Add(std::unique_ptr<PairCommunicator> communicator);
  // Frees the communicators whose abort has ended.
  void Reap();
  // The number of communicators whose abort had not ended at the last Reap.
  size_t size() const;

 private:
  const Duration limit_;
  mutable std::mutex mutex_;
  std::vector<std::unique_ptr<PairCommunicator>> waiting_;
};

}  // namespace baton
