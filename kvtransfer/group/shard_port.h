#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"

namespace baton {

// The two data planes of a worker: of its KvSender and of its KvReceiver.
enum class PlaneRole : uint8_t { kSender, kReceiver };

// Carries messages between the leading rank of a worker and its ranks on other hosts. Each of these
// has the arena of one shard. The messages between two ends arrive in their order. When a rank is
// lost, the whole worker ends, so nothing is reported here. Thread-safe.
class ShardPort {
 public:
  using Listener = std::function<void(uint32_t shard, std::string_view message)>;

  virtual ~ShardPort() = default;
  // The indices of the shards on other hosts.
  virtual const std::vector<uint32_t>& shards() const = 0;
  virtual Status Send(uint32_t shard, PlaneRole plane, std::string_view message) = 0;
  // Sets who receives the messages for `plane`, on a thread of the port. Null: nobody; then the
  // listener before is not called any more.
  virtual void Listen(PlaneRole plane, Listener listener) = 0;
};

}  // namespace baton
