#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "common/base/clock.h"
#include "router/api/api_call.h"

namespace baton::router {

// Writes comments into streams that are silent for `interval`, on a thread of its own. Thread-safe.
class KeepAlive final {
 public:
  // Zero: never.
  explicit KeepAlive(Duration interval);
  ~KeepAlive();

  void Watch(const std::shared_ptr<ApiCall>& call);

 private:
  void Run(const std::stop_token& stop);

  const Duration interval_;
  std::mutex mutex_;
  std::condition_variable_any wake_;
  std::vector<std::weak_ptr<ApiCall>> calls_;  // guarded by mutex_
  std::jthread thread_;
};

}  // namespace baton::router
