#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "kvtransfer/data_plane/bound_transport.h"
#include "kvtransfer/data_plane/data_plane.h"
#include "kvtransfer/options.h"
#include "kvtransfer/wire/pacer.h"

namespace baton {

// The writer of LocalDataPlane: one channel from each sender shard to each receiver shard, with a
// bounded number of bytes in flight. Further writes wait, in order.
class LocalPeerWriter final : public PeerWriter {
 public:
  // Options and transports must outlive the writer.
  LocalPeerWriter(const KvTransferOptions& options,
                  std::vector<BoundTransport>& transports,
                  Hello theirs,
                  const std::vector<LinkRoute>& routes);

  Status Connect() override;
  void Enqueue(const SessionKey& session,
               const Terms& terms,
               std::span<const Block> blocks) override;
  void Start(const SessionKey& session) override;
  bool Poll(Time now, WriteListener& listener) override;
  Time wake_time() const override;
  void Stop(const SessionKey& session, WriteListener& listener) override;
  void Release(uint64_t window_key) override;
  bool PostNote(uint64_t window_key, std::string_view note) override;
  void Fence(const SessionKey& session) override;
  void FenceAll() override;
  bool idle() const override;
  std::vector<LinkGroups> link_groups() const override;
  Duration GroupTime() const override;
  bool prefers_bursts() const override;
  bool takes_notes() const override;
  bool polls_for_seal() const override;
  const std::string& transport_name() const override { return transport_name_; }
  const std::string& not_taken() const override { return not_taken_; }
  uint64_t ops() const override { return ops_; }
  uint64_t op_bytes() const override;

 private:
  static constexpr size_t kElsewhere = SIZE_MAX;  // the link begins at a shard on another host

  // Consecutive blocks, or the state, of one session on one link; they become one write.
  struct Job {
    SessionKey session;
    Terms terms;
    uint32_t link = 0;
    uint32_t first = 0;
    uint32_t pieces = 1;
    std::vector<BlockPair> pairs;
  };
  struct InFlightWrite {
    SessionKey session;
    uint32_t link = 0;
    uint32_t first = 0;
    uint32_t pieces = 0;
    uint64_t bytes = 0;
    bool held = false;
  };
  struct Link {
    KvLink link;
    KvShard source;
    KvShard destination;
    uint64_t block_bytes = 0;  // LinkBlockBytes
    size_t blocks_per_op = 1;
    size_t shard = kElsewhere;
  };
  // All links between two shards; they share one channel.
  struct ShardChannel {
    LinkRoute route;  // route of the first link
    size_t op_bytes = 0;
    size_t flight_bytes = 0;
    bool receiver_paces = false;
    Time paced_until = kNever;  // kNever: no write waits for its rate
    std::unique_ptr<Channel> channel;
    std::deque<Job> waiting;
    std::unordered_map<uint64_t, InFlightWrite> in_flight;  // by operation id
    std::deque<uint64_t> starting;                          // held operations that may begin
    // Updated by CountIn and CountOut: the number of held operations, and the bytes of all others.
    size_t held = 0;
    uint64_t in_flight_bytes = 0;

    // Adds `write` to, or removes it from, the counts of operations in flight. `write.held` must
    // be the same in both calls.
    void CountIn(const InFlightWrite& write);
    void CountOut(const InFlightWrite& write);
  };

  // The index of the route's shard; creates the shard if there is none yet.
  size_t ShardOf(const LinkRoute& route);
  void EnqueueOn(uint32_t link_index,
                 const SessionKey& session,
                 Terms terms,
                 std::span<const Block> blocks);
  // Moves the session's waiting jobs before all jobs that are not urgent.
  void Hasten(const SessionKey& session);
  // True if more can be posted than the quantum of one call.
  bool Post(ShardChannel& shard, Time now, WriteListener& listener);
  // Whether the rate of the grant allows a write to the shard's destination now.
  bool IsAllowed(ShardChannel& shard, Time now);
  // Starts the first held operation that may begin. Returns its bytes, or 0 if it has ended
  // already.
  uint64_t StartFirst(ShardChannel& shard);
  // The bytes that begin to move: none for a held write.
  StatusOr<uint64_t> PostJob(ShardChannel& shard, const Job& job, WriteListener& listener);
  // Returns how many operations ended.
  size_t TakeEvents(ShardChannel& shard, Time now, WriteListener& listener);
  // Whether the link's cache group has states.
  bool HasStates(const Link& link) const;
  // The number of blocks of the link in one operation.
  size_t BlocksPerOp(const Link& link) const;

  const KvTransferOptions& options_;
  std::vector<BoundTransport>& transports_;
  const Hello theirs_;
  std::vector<Link> links_;
  std::vector<ShardChannel> shards_;
  std::map<uint32_t, Pacer> pacers_;  // by receiver shard
  std::string transport_name_;
  std::string not_taken_;
  uint64_t ops_ = 0;
};

}  // namespace baton
