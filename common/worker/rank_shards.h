#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string_view>
#include <vector>

#include "common/group/remote_leader.h"
#include "common/group/remote_ranks.h"
#include "kvtransfer/group/shard_port.h"
#include "kvtransfer/group/shard_server.h"

// The data plane between the hosts of a group: the messages of kvtransfer as letters of the group.
// The shard of a rank has the rank's number.
namespace baton {

// The leader's end. `ranks` outlives the port.
class RankShardPort final : public ShardPort {
 public:
  explicit RankShardPort(RemoteRanks& ranks);
  ~RankShardPort() override;

  const std::vector<uint32_t>& shards() const override { return shards_; }
  Status Send(uint32_t shard, PlaneRole plane, std::string_view message) override;
  void Listen(PlaneRole plane, Listener listener) override;

 private:
  RemoteRanks& ranks_;
  std::vector<uint32_t> shards_;
  std::mutex mutex_;
  std::array<Listener, 2> listeners_;  // by PlaneRole
};

// The end of a follower on another host: serves its arena to the leader. `leader` outlives it.
class RankShardServers final {
 public:
  RankShardServers(RemoteLeader& leader,
                   const KvTransferOptions& options,
                   uint32_t rank,
                   const Buffer& arena);
  ~RankShardServers();

 private:
  RemoteLeader& leader_;
  std::array<std::unique_ptr<ShardServer>, 2> servers_;  // by PlaneRole
};

}  // namespace baton
