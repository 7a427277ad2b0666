#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kvtransfer/data_plane/data_plane.h"
#include "kvtransfer/data_plane/planner.h"
#include "kvtransfer/group/shard_calls.h"

namespace baton {

// The writer of GroupDataPlane: a writer of this process's own arenas, and one on each rank that is
// on another host.
class GroupPeerWriter final : public PeerWriter {
 public:
  // `links`: those that begin at shards on other hosts. `answers`: of the kNewWriter to the ranks.
  // `calls` outlives the writer.
  GroupPeerWriter(ShardCalls& calls,
                  uint64_t number,
                  std::unique_ptr<PeerWriter> local,
                  std::vector<KvLink> links,
                  const std::vector<ShardEvent>& answers);
  ~GroupPeerWriter() override;

  // Connects the channels of other ranks in the background; the writes on a channel that cannot
  // connect are lost.
  Status Connect() override;
  void Enqueue(const SessionKey& session,
               const Terms& terms,
               std::span<const Block> blocks) override;
  void Start(const SessionKey& session) override;
  bool Poll(Time now, WriteListener& listener) override;
  // The other ranks observe the rates of their writes themselves (ShardServer).
  Time wake_time() const override { return local_->wake_time(); }
  void Stop(const SessionKey& session, WriteListener& listener) override;
  void Release(uint64_t window_key) override;
  bool PostNote(uint64_t /*window_key*/, std::string_view /*note*/) override { return false; }
  void Fence(const SessionKey& session) override;
  void FenceAll() override;
  bool idle() const override { return outstanding_ == 0 && local_->idle(); }
  std::vector<LinkGroups> link_groups() const override { return local_->link_groups(); }
  // Only the ranks know the rates of their channels.
  Duration GroupTime() const override { return {}; }
  bool prefers_bursts() const override { return false; }
  // A SEAL on one rank's channel could overtake the report of another rank's last write.
  bool takes_notes() const override { return false; }
  bool polls_for_seal() const override { return false; }
  const std::string& transport_name() const override { return transport_name_; }
  const std::string& not_taken() const override { return not_taken_; }
  uint64_t ops() const override { return local_->ops() + ops_; }
  uint64_t op_bytes() const override { return local_->op_bytes() + kOpBytes * links_.size(); }

 private:
  static constexpr uint64_t kOpBytes = uint64_t{1} << 20;  // of another rank's write on one link

  ShardCommand Command(ShardCommand::Kind kind) const;
  void Send(ShardCommand::Kind kind, const SessionKey& session);

  ShardCalls& calls_;
  const uint64_t number_;
  const std::unique_ptr<PeerWriter> local_;
  const std::vector<KvLink> links_;
  std::string transport_name_;
  std::string not_taken_;
  uint64_t outstanding_ = 0;  // pieces on links_
  uint64_t ops_ = 0;          // writes on links_ that have ended
};

}  // namespace baton
