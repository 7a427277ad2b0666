#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/ids.h"
#include "common/base/status.h"

namespace baton::router {

// A worker that was not let in, as often as it came.
struct RefusedJoin {
  WorkerId worker;      // may be empty
  std::string address;  // of its last attempt
  std::string reason;
  int64_t attempts = 0;
  Time last{};
};

// The latest workers that were not let in, each once: by id and host, since a worker's port changes
// from one attempt to the next. Bounded, whatever strangers say. Owned by RouterCore; not
// thread-safe.
class RefusedJoins final {
 public:
  static constexpr size_t kMaxEntries = 32;

  // True when the log should hear of it: of a new reason, and of the 2nd, 4th, 8th … attempt.
  bool Add(const WorkerId& worker, const std::string& address, const Status& why, Time now);
  // It was let in.
  void Forget(const WorkerId& worker, const std::string& address);

  // The latest first.
  const std::vector<RefusedJoin>& entries() const { return entries_; }

 private:
  std::vector<RefusedJoin>::iterator Find(const WorkerId& worker, const std::string& address);

  std::vector<RefusedJoin> entries_;
};

}  // namespace baton::router
