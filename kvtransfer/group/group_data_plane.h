#pragma once

#include <map>
#include <memory>
#include <vector>

#include "kvtransfer/data_plane/data_plane.h"
#include "kvtransfer/group/shard_calls.h"
#include "kvtransfer/group/shard_port.h"
#include "kvtransfer/options.h"

namespace baton {

// The data plane of a worker with ranks on several hosts. It serves the arenas that this process
// reaches as LocalDataPlane does. For the others it commands the ShardServer of each rank, so that
// the bytes move between the ranks' own hosts.
class GroupDataPlane final : public DataPlane {
 public:
  // Opens the data plane of every rank. Errors: those of LocalDataPlane::Create, here or on another
  // host. The references outlive the data plane.
  static StatusOr<std::unique_ptr<GroupDataPlane>> Create(const KvTransferOptions& options,
                                                          bool listen,
                                                          ShardPort& port);

  const std::vector<KvShardInfo>& shards() const override { return shards_; }
  std::vector<int> wait_fds() const override;
  StatusOr<std::unique_ptr<PeerWriter>> NewWriter(const Hello& theirs) override;
  // Returns when every rank has opened its windows, because the peer may write at once.
  Status OpenWindows(const SessionKey& session, WindowGrant grant) override;
  void SetReceiveRate(uint64_t bytes_per_second) override;
  void CloseWindows(const SessionKey& session) override;
  void Poll(Time now, WindowListener& listener) override;

 private:
  struct SessionWindows {
    size_t open = 0;  // data planes that have not closed all windows of the session
    bool unfenced = false;
  };
  class LocalEvents;

  explicit GroupDataPlane(const KvTransferOptions& options) : options_(options) {}
  Status Open(bool listen, ShardPort& port);
  void OnEvent(const ShardEvent& event, WindowListener& listener);
  void OnClosed(const SessionKey& session, const Status& status, WindowListener& listener);

  const KvTransferOptions& options_;
  std::unique_ptr<ShardCalls> calls_;
  std::unique_ptr<DataPlane> local_;
  std::vector<KvShardInfo> shards_;
  std::map<SessionKey, SessionWindows> sessions_;
};

}  // namespace baton
