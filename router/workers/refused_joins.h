#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/ids.h"
#include "common/base/status.h"

namespace baton::router {

// A worker whose joins were refused, with the number of its attempts.
struct RefusedJoin {
  WorkerId worker;      // may be empty
  std::string address;  // remote address of the last attempt
  std::string reason;
  int64_t attempts = 0;
  Time last{};
};

// The workers that were refused last, one entry per worker id and host, because a worker's port
// changes from one attempt to the next. Number and size of the entries are bounded, whatever
// unknown processes send. Owned by RouterCore; not thread-safe.
class RefusedJoins final {
 public:
  static constexpr size_t kMaxEntries = 32;

  // True when the refusal should be logged: for a new reason, and at the 2nd, 4th, 8th … attempt.
  bool Add(const WorkerId& worker, const std::string& address, const Status& why, Time now);
  // Removes the worker's entry, because the worker was accepted.
  void Forget(const WorkerId& worker, const std::string& address);

  // The most recent refusal first.
  const std::vector<RefusedJoin>& entries() const { return entries_; }

 private:
  std::vector<RefusedJoin>::iterator Find(const WorkerId& worker, const std::string& address);

  std::vector<RefusedJoin> entries_;
};

}  // namespace baton::router
