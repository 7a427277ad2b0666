#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "kvtransfer/bound_transport.h"
#include "kvtransfer/options.h"

namespace baton {

// Receives the events of a session's pieces, which are (block, link) pairs. See SenderSession.
class PieceSink {
 public:
  virtual ~PieceSink() = default;
  // The writes of these pieces are posted, and the checksums of their source are known (zeros if
  // the grant wants none).
  virtual void OnPosted(const SessionKey& session,
                        uint32_t link,
                        uint32_t first,
                        std::span<const uint64_t> checksums,
                        uint64_t bytes) = 0;
  virtual void OnWritten(const SessionKey& session, uint32_t pieces, uint64_t bytes) = 0;
  virtual void OnLost(const SessionKey& session, uint32_t pieces, const Status& reason) = 0;
};

// Writes blocks of the local arenas to one peer: one channel from each sender shard to each
// receiver shard, with a bounded number of bytes in flight. Further writes wait, in order. Not
// thread-safe: the sender's thread only.
class PeerWriter final {
 public:
  // Options and transports must outlive the writer.
  PeerWriter(const KvTransferOptions& options,
             std::vector<BoundTransport>& transports,
             Hello theirs,
             const std::vector<LinkRoute>& routes);

  // Connects the channels that are not connected. After an error some link cannot be served now.
  Status Connect();

  // The terms of the grant for every write, and the layer groups whose links are written.
  struct Terms {
    uint64_t window_key = 0;
    bool checksums = true;
    uint32_t first_group = 0;
    uint32_t end_group = 0;
    bool held = false;  // held writes (WriteOp::held) until Start
  };
  // One block to write: its index in Grant::blocks, its source and its destination.
  struct Block {
    uint32_t index = 0;
    BlockPair pair;
  };
  // Queues writes of `blocks`, whose indices must ascend.
  void Enqueue(const SessionKey& session, const Terms& terms, std::span<const Block> blocks);

  // Lets the held writes of the session begin to move.
  void Start(const SessionKey& session);

  // Posts queued writes within the bound, and handles the channels' events. True if it should be
  // called again at once.
  bool Pump(Time now, PieceSink& sink);
  // Ends those pieces of the session that can end at once.
  void Stop(const SessionKey& session, PieceSink& sink);
  // No further piece of the session is planned; `window_key` is the key of its grant.
  void Release(uint64_t window_key);
  // Sends a note for the window of a grant (Channel::PostNote). False: no channel accepted the
  // note.
  bool PostNote(uint64_t window_key, std::string_view note);
  // Kills the channels on which pieces of the session are outstanding. Pump reports how the pieces
  // ended.
  void Fence(const SessionKey& session);
  void FenceAll();

  bool idle() const;
  size_t link_count() const { return links_.size(); }
  // The layer group of each link.
  std::vector<uint32_t> link_groups() const;
  // The average time to send one layer group of one block, if all transports prefer bursts and
  // their rates are known; else 0.
  Duration GroupTime() const;
  bool takes_notes() const;
  const Hello& theirs() const { return theirs_; }
  // "shm", or "shm+tcp" if the links use different transports.
  const std::string& transport_name() const { return transport_name_; }
  uint64_t ops() const { return ops_; }

 private:
  // Consecutive blocks of one session on one link; they become one write.
  struct Job {
    SessionKey session;
    Terms terms;
    uint32_t link = 0;
    uint32_t first = 0;
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
    uint64_t block_bytes = 0;
    size_t blocks_per_op = 1;
    size_t shard = 0;
  };
  // All links between two shards; they share one channel.
  struct ShardChannel {
    LinkRoute route;  // route of the first link
    size_t op_bytes = 0;
    size_t flight_bytes = 0;
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
  // True if more can be posted than the quantum of one call.
  bool Post(ShardChannel& shard, PieceSink& sink);
  // Starts the first held operation that may begin. Returns its bytes, or 0 if it has ended
  // already.
  uint64_t StartFirst(ShardChannel& shard);
  Status PostJob(ShardChannel& shard, const Job& job, PieceSink& sink);
  // Returns how many operations ended.
  size_t TakeEvents(ShardChannel& shard, Time now, PieceSink& sink);
  // The number of blocks of the link in one operation.
  size_t BlocksPerOp(const Link& link) const;

  const KvTransferOptions& options_;
  std::vector<BoundTransport>& transports_;
  const Hello theirs_;
  std::vector<Link> links_;
  std::vector<ShardChannel> shards_;
  std::string transport_name_;
  uint64_t ops_ = 0;
};

}  // namespace baton
