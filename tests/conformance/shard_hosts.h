#pragma once

#include <array>
#include <memory>
#include <mutex>
#include <vector>

#include "kvtransfer/group/shard_port.h"
#include "kvtransfer/group/shard_server.h"
#include "kvtransfer/options.h"

namespace baton {

// Other hosts of a worker, in this process: a ShardServer for every shard but the first, which a
// GroupDataPlane reaches through this port. Must outlive the sender or receiver that uses it.
class ShardHosts final : public ShardPort {
 public:
  // `whole` are the options of the worker as if all of its arenas were in one process.
  explicit ShardHosts(const KvTransferOptions& whole);

  // The options of the leading rank, which has only the first arena.
  KvTransferOptions LeadingOptions();

  const std::vector<uint32_t>& shards() const override { return shards_; }
  Status Send(uint32_t shard, PlaneRole plane, std::string_view message) override;
  void Listen(PlaneRole plane, Listener listener) override;

 private:
  void Deliver(uint32_t shard, PlaneRole plane, std::string_view message);

  const KvTransferOptions whole_;
  std::vector<uint32_t> shards_;
  std::mutex commands_;  // a server takes its messages from one thread at a time
  std::mutex mutex_;     // of listeners_
  std::array<Listener, 2> listeners_;
  // By PlaneRole and place in shards_.
  std::array<std::vector<std::unique_ptr<ShardServer>>, 2> servers_;
};

}  // namespace baton
