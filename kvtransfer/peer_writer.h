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

// What became of a session's pieces, (block, link) pairs. See SenderSession.
class PieceSink {
 public:
  virtual ~PieceSink() = default;
  // Their writes are posted, and the source's checksums known (zeros when none are wanted).
  virtual void OnPosted(const SessionKey& session,
                        uint32_t link,
                        uint32_t first,
                        std::span<const uint64_t> checksums,
                        uint64_t bytes) = 0;
  virtual void OnWritten(const SessionKey& session, uint32_t pieces, uint64_t bytes) = 0;
  virtual void OnLost(const SessionKey& session, uint32_t pieces, const Status& reason) = 0;
};

// Writes blocks of the local arenas to one peer: one channel from each sender shard to each
// receiver shard, a bounded number of bytes in flight. What exceeds the bound waits, in order. Not
// thread-safe: the sender's thread only.
class PeerWriter final {
 public:
  // Options and transports outlive the writer.
  PeerWriter(const KvTransferOptions& options,
             std::vector<BoundTransport>& transports,
             Hello theirs,
             const std::vector<LinkRoute>& routes);

  // Connects the channels that are not connected. An error: a link cannot be served now.
  Status Connect();

  // What the grant says of every write, and the layer groups whose links are to be written.
  struct Terms {
    uint64_t window_key = 0;
    bool checksums = true;
    uint32_t first_group = 0;
    uint32_t end_group = 0;
    bool held = false;  // until Start
  };
  // (index into Grant::blocks, from, to).
  struct Block {
    uint32_t index = 0;
    BlockPair pair;
  };
  // Queues writes of `blocks`, which ascend by index.
  void Enqueue(const SessionKey& session, const Terms& terms, std::span<const Block> blocks);

  // Lets the session's held writes begin.
  void Start(const SessionKey& session);

  // Posts what fits and takes in what ended. True when more can be done at once.
  bool Pump(Time now, PieceSink& sink);
  // Ends the session's pieces where that is possible at once.
  void Stop(const SessionKey& session, PieceSink& sink);
  // No piece of the session is meant to follow; `window_key` is its grant's.
  void Release(uint64_t window_key);
  // Whether a channel takes the note, of the window of a grant (Channel::PostNote).
  bool PostNote(uint64_t window_key, std::string_view note);
  // Kills the channels on which pieces of the session are outstanding; their ends come in Pump.
  void Fence(const SessionKey& session);
  void FenceAll();

  bool idle() const;
  size_t link_count() const { return links_.size(); }
  // The layer group of each link.
  std::vector<uint32_t> link_groups() const;
  // How long a layer group of a block is on its way on average, when all transports prefer bursts
  // and their rate is known; else 0.
  Duration GroupTime() const;
  bool takes_notes() const;
  const Hello& theirs() const { return theirs_; }
  // "shm", or "shm+tcp" when links differ.
  const std::string& transport_name() const { return transport_name_; }
  uint64_t ops() const { return ops_; }

 private:
  // Neighbouring blocks of one session on one link: one write.
  struct Job {
    SessionKey session;
    Terms terms;
    uint32_t link = 0;
    uint32_t first = 0;
    std::vector<BlockPair> pairs;
  };
  struct Flight {
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
    size_t lane = 0;
  };
  // All links between two shards: one channel.
  struct Lane {
    LinkRoute route;  // of its first link
    size_t op_bytes = 0;
    size_t flight_bytes = 0;
    std::unique_ptr<Channel> channel;
    std::deque<Job> waiting;
    std::unordered_map<uint64_t, Flight> flying;  // by operation
    std::deque<uint64_t> starting;                // of the held ones, those that may begin
    // Kept by CountIn and CountOut: held operations, and the bytes of the others.
    size_t held = 0;
    uint64_t flying_bytes = 0;

    // `flight` has begun to fly as it is now, or does not any more.
    void CountIn(const Flight& flight);
    void CountOut(const Flight& flight);
  };

  // The index of its lane, made when there is none yet.
  size_t LaneOf(const LinkRoute& route);
  void EnqueueOn(uint32_t link_index,
                 const SessionKey& session,
                 Terms terms,
                 std::span<const Block> blocks);
  // True when there was more than its quantum.
  bool Post(Lane& lane, PieceSink& sink);
  // Starts the first held operation that may begin; its bytes, or 0 when it has ended.
  uint64_t StartFirst(Lane& lane);
  Status PostJob(Lane& lane, const Job& job, PieceSink& sink);
  // How many operations ended.
  size_t TakeEvents(Lane& lane, Time now, PieceSink& sink);
  // How many blocks of the link make one operation.
  size_t BlocksPerOp(const Link& link) const;

  const KvTransferOptions& options_;
  std::vector<BoundTransport>& transports_;
  const Hello theirs_;
  std::vector<Link> links_;
  std::vector<Lane> lanes_;
  std::string transport_name_;
  uint64_t ops_ = 0;
};

}  // namespace baton
