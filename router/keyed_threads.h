#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "common/base/mailbox.h"

namespace baton::router {

// A few threads that run functions. The key of a function selects its thread, so functions with the
// same key run one after another, in the order of Post. Thread-safe. Functions must not block for
// long; their exceptions are logged. The destructor drops functions that have not started.
class KeyedThreads final {
 public:
  KeyedThreads(const std::string& name, size_t count);
  ~KeyedThreads();

  void Post(uint64_t key, std::function<void()> run);
  size_t count() const { return lanes_.size(); }

 private:
  struct Lane {
    Mailbox<std::function<void()>> mailbox;
    std::jthread thread;
  };
  static void Run(Lane& lane);

  std::vector<std::unique_ptr<Lane>> lanes_;
};

}  // namespace baton::router
