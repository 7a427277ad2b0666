#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/clock.h"
#include "common/base/ids.h"
#include "common/base/status.h"
#include "kvtransfer/data_plane/planner.h"
#include "kvtransfer/messages/messages.h"

// The data plane moves the bytes of hand-offs: it has the arenas, transports, channels and write
// windows of every rank of a worker. The sessions, which decide what moves and when, are on the
// leading rank (KvSender, KvReceiver) and use only these interfaces. LocalDataPlane is the data
// plane of a worker whose ranks are all in this process. Not thread-safe, except where stated: the
// thread of the sender or receiver.
namespace baton {

// Receives the progress of a session's writes, counted in pieces: one block, or one state, on one
// link.
class WriteListener {
 public:
  virtual ~WriteListener() = default;
  // The writes of the pieces of blocks first, first + 1, … on `link`, of `bytes` bytes in all, are
  // posted. `checksums` has the checksum of each piece's source (zeros if the grant wants none).
  virtual void OnPosted(const SessionKey& session,
                        uint32_t link,
                        uint32_t first,
                        std::span<const uint64_t> checksums,
                        uint64_t bytes) = 0;
  // The pieces are in place, and their source is not read any more.
  virtual void OnWritten(const SessionKey& session, uint32_t pieces, uint64_t bytes) = 0;
  // The pieces will not be written, and their source is not read any more.
  virtual void OnWriteLost(const SessionKey& session, uint32_t pieces, const Status& reason) = 0;
};

// Writes blocks of the local arenas to one peer.
class PeerWriter {
 public:
  virtual ~PeerWriter() = default;

  // Connects the channels that are not connected. After an error some link cannot be served now.
  virtual Status Connect() = 0;

  // The terms of the grant for every write, and the links that are written.
  struct Terms {
    uint64_t window_key = 0;
    bool checksums = true;
    uint32_t cache_group = 0;
    uint32_t first_group = 0;
    uint32_t end_group = 0;
    bool held = false;  // held writes (WriteOp::held) until Start
    // These and the queued writes of the session go before the writes of sessions that are not
    // urgent.
    bool urgent = false;
    uint64_t bytes_per_second = 0;  // Grant::bytes_per_second
  };
  // One block to write: its index among the granted blocks of its cache group, its source and its
  // destination. The blocks of a state (PairsOfState) all have index 0.
  struct Block {
    uint32_t index = 0;
    BlockPair pair;
  };
  // Queues writes of `blocks`, whose indices must not descend. Blocks of one index are one piece.
  virtual void Enqueue(const SessionKey& session,
                       const Terms& terms,
                       std::span<const Block> blocks) = 0;
  // Lets the held writes of the session begin to move.
  virtual void Start(const SessionKey& session) = 0;
  // Posts queued writes and reports progress. True if it should be called again at once.
  virtual bool Poll(Time now, WriteListener& listener) = 0;
  // When Poll must be called again at the latest, because queued writes wait for their rate.
  virtual Time wake_time() const = 0;
  // Ends those pieces of the session that can end at once.
  virtual void Stop(const SessionKey& session, WriteListener& listener) = 0;
  // No further piece of the session is planned; `window_key` is the key of its grant.
  virtual void Release(uint64_t window_key) = 0;
  // Sends a note for the window of a grant (Channel::PostNote). False: no channel accepted the
  // note.
  virtual bool PostNote(uint64_t window_key, std::string_view note) = 0;
  // Kills the channels on which pieces of the session are outstanding. Poll reports how the pieces
  // ended.
  virtual void Fence(const SessionKey& session) = 0;
  virtual void FenceAll() = 0;

  // No piece is queued or outstanding.
  virtual bool idle() const = 0;
  // The groups of each link to the peer.
  virtual std::vector<LinkGroups> link_groups() const = 0;
  // The average time to send one layer group of one block, if the rates of all channels are known;
  // else 0.
  virtual Duration GroupTime() const = 0;
  // Whether all transports do (TransportCaps).
  virtual bool prefers_bursts() const = 0;
  virtual bool takes_notes() const = 0;
  // Some transport takes notes and busy-polls.
  virtual bool polls_for_seal() const = 0;
  // "shm", or "shm+tcp" if the links use different transports.
  virtual const std::string& transport_name() const = 0;
  // Why the transports that are preferred to these are not in use, each with its reason; or empty.
  virtual const std::string& not_taken() const = 0;
  // The number of write operations so far.
  virtual uint64_t ops() const = 0;
  // The bytes of one write on each channel, which may be in place before OnWritten.
  virtual uint64_t op_bytes() const = 0;
};

// A peer, and the links from its shards to the shards of this worker (PlanLinks).
struct PeerLinks {
  BootId boot = {};
  std::vector<KvShard> sources = {};  // the peer's shards
  std::vector<KvLink> links;
};

// The right of a session's peer to write `blocks`.
struct WindowGrant {
  uint64_t window_key = 0;                   // writes into shard i carry window_key + i
  std::vector<std::vector<BlockId>> blocks;  // as Grant::blocks
  std::shared_ptr<const PeerLinks> peer;
};

// Receives the events of a session's windows.
class WindowListener {
 public:
  virtual ~WindowListener() = default;
  // Pieces landed exactly where their link and blocks say. `polls_for_seal`: SEAL may come as a
  // note, and the transport busy-polls.
  virtual void OnArrival(const SessionKey& session,
                         const PieceArrival& piece,
                         std::string_view transport,
                         bool polls_for_seal) = 0;
  // The peer wrote into its windows what its links do not explain.
  virtual void OnMisplaced(const SessionKey& session, const Status& error) = 0;
  // The peer sent a note (Channel::PostNote) for a window of the session.
  virtual void OnNote(const SessionKey& session, std::string_view note) = 0;
  // OK: every window of the session is closed; the last event. An error: the close could not be
  // enforced in time; OK comes later or never.
  virtual void OnWindowsClosed(const SessionKey& session, const Status& status) = 0;
};

class DataPlane {
 public:
  virtual ~DataPlane() = default;
  // The shards for HELLO, with endpoints if the data plane listens.
  virtual const std::vector<KvShardInfo>& shards() const = 0;
  // Readable whenever Poll, here or of a writer, may have work.
  virtual std::vector<int> wait_fds() const = 0;

  // Sender: a writer to the peer `theirs`, not connected yet. May be called from any thread. The
  // data plane must outlive the writer. FailedPrecondition or InvalidArgument: a shard of the peer
  // cannot be filled, or no transport reaches it.
  virtual StatusOr<std::unique_ptr<PeerWriter>> NewWriter(const Hello& theirs) = 0;

  // Receiver: lets the peer write the blocks of `grant` on every rank. After an error some windows
  // may be open. In any case CloseWindows must follow.
  virtual Status OpenWindows(const SessionKey& session, WindowGrant grant) = 0;
  // Receiver: Transport::SetReceiveRate of every transport of every rank.
  virtual void SetReceiveRate(uint64_t bytes_per_second) = 0;
  // OnWindowsClosed follows, from within Poll.
  virtual void CloseWindows(const SessionKey& session) = 0;
  // Serves peers, a bounded amount of work, and reports events.
  virtual void Poll(Time now, WindowListener& listener) = 0;
};

}  // namespace baton
