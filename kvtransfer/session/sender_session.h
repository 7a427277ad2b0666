#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "kvtransfer/data_plane/planner.h"
#include "kvtransfer/messages/messages.h"
#include "kvtransfer/options.h"
#include "kvtransfer/session/piece_index.h"

namespace baton {

// The actions of a SenderSession, to be carried out in order.
struct SendControl {
  ControlMessage message;
};
// Write these blocks (indices of the granted blocks of a cache group; 0 is the state if the group
// has states) on every link of the cache group and of the layer groups [first_group, end_group).
// Each (block, link) pair is one *piece*.
// Each piece must be reported by OnPosted, and by either OnWritten or OnWriteLost. If `held`, no
// byte of the pieces may move yet. If `urgent`, the prompt is computed, so that its client waits
// for these blocks.
struct PostBlocks {
  uint32_t cache_group = 0;
  std::vector<uint32_t> blocks;
  uint32_t first_group = 0;
  uint32_t end_group = 1;
  uint32_t pieces = 0;
  bool held = false;
  bool urgent = false;
};
struct StartWrites {};    // start all held writes
struct StopWrites {};     // end outstanding pieces early where possible
struct FenceWrites {};    // the pieces did not end in time: kill their channels
struct ReportGranted {};  // grant() is known
struct ReportRefused {
  Status status;
};
struct ReportQuarantined {};
struct ReportEnd {  // last action of a session; nothing is outstanding
  Status status;
};
using SenderAction = std::variant<SendControl,
                                  PostBlocks,
                                  StartWrites,
                                  StopWrites,
                                  FenceWrites,
                                  ReportGranted,
                                  ReportRefused,
                                  ReportQuarantined,
                                  ReportEnd>;

enum class SenderState {
  kOffered,      // OFFER is sent
  kRefused,      // parked until it is offered again or aborted
  kStreaming,    // granted; blocks are sent as they become ready
  kSealed,       // SEAL is sent; waiting for ACK
  kDraining,     // the outcome is known; waiting for outstanding pieces
  kFencing,      // the drain took too long; channels are being killed
  kQuarantined,  // the fence took too long as well
  kEnded,
};
std::string_view Name(SenderState state);

// What a sender answers to a message of a session that it does not have; nullopt: nothing. It ends
// a session only when none of the session's writes is outstanding.
std::optional<ControlMessage> AnswerWithoutSender(const ControlMessage& message);

// One hand-off, as the prefill worker sees it. Pure: no I/O, threads or clock; every input carries
// the time, and TakeActions() returns the actions. Source blocks may be read from the first
// PostBlocks until ReportEnd. Owned by KvSender, or by a simulation.
class SenderSession final {
 public:
  struct Params {
    uint32_t total_tokens = 0;
    OwedBlocks owed;
    Duration timeout{};
    uint32_t layer_groups = 1;
    uint32_t state_blocks = 0;  // the local arena blocks of a state
  };
  // Blocks first_index, first_index + 1, … of the prompt.
  struct Chunk {
    uint32_t first_index = 0;
    // One entry per block of tokens and cache group of blocks of tokens: blocks[i · groups + g].
    // Entries of blocks that are not owed are not read.
    std::span<const BlockId> blocks;
    uint32_t layer_groups = 1;  // the number of layer groups that are final, from the first one on
    // The blocks of the state after the prompt. Only with the last block of the prompt, if the
    // layout has states.
    std::span<const BlockId> state = {};
  };

  SenderSession(const Params& params, const SessionTimes& times, Time now);

  // From the worker. After a refusal: sends the offer again, with a new time-out.
  void OfferAgain(Duration timeout, Time now);
  // May be called again for the same blocks with more layer groups. InvalidArgument if the blocks
  // are outside the prompt, come after Seal, or lack the state.
  Status AddBlocks(const Chunk& chunk, Time now);
  void Seal(std::string payload, Time now);
  void Abort(Status reason, Time now);

  // Sets the groups of each link to the peer, and the peer's arena blocks of a state. To be called
  // before a GRANT for as many links is passed to OnMessage.
  void SetLinks(std::vector<LinkGroups> groups, uint32_t state_blocks = 0) {
    link_groups_ = std::move(groups);
    peer_state_blocks_ = state_blocks;
  }
  // Also before a GRANT. `group_time` is the time to send one layer group of one block. If it is
  // not zero, writes are held while there is time (TransportCaps::prefers_bursts).
  void SetGroupTime(Duration group_time) { group_time_ = group_time; }

  // From the peer.
  void OnMessage(const ControlMessage& message, Time now);
  void OnPeerLost(Status reason, Time now);

  // From the data path. The pieces of blocks first, first + 1, … on `link`, of `bytes` bytes in
  // all, are posted, and `checksums` has one checksum per piece (ignored if the grant wants none).
  void OnPosted(
      uint32_t link, uint32_t first, std::span<const uint64_t> checksums, uint64_t bytes, Time now);
  void OnWritten(uint32_t pieces, uint64_t bytes, Time now);
  void OnWriteLost(uint32_t pieces, const Status& reason, Time now);

  void OnTime(Time now);
  // The time at which OnTime must be called next.
  Time wake_time() const;

  std::vector<SenderAction> TakeActions() { return std::exchange(actions_, {}); }
  SenderState state() const { return state_; }
  const Grant& grant() const { return grant_; }
  // Blocks of tokens of the prompt.
  uint32_t block_count() const { return params_.owed.count; }
  // The local blocks of the state; none before they were added.
  std::span<const BlockId> state_blocks() const { return state_sources_; }
  // The number of local arena blocks that may be read: those of all cache groups and of the state.
  uint32_t source_blocks() const;
  // The local and the granted block of index `block` among those granted in a cache group of blocks
  // of tokens.
  BlockPair pair(uint32_t block, uint32_t cache_group) const {
    const size_t in_prompt = params_.owed.from(cache_group, grant_.cached_blocks) + block;
    return {sources_[in_prompt * params_.owed.block_groups() + cache_group],
            grant_.blocks[cache_group][block]};
  }
  uint32_t outstanding() const { return outstanding_; }
  // Every piece is written, and Seal has not been called.
  bool lacks_only_seal() const {
    return state_ == SenderState::kStreaming && !seal_wanted_ && to_post_ == 0 && outstanding_ == 0;
  }
  // The prompt is complete, and the hand-off waits only for its writes.
  bool lacks_only_writes() const {
    return live() && seal_wanted_ && (to_post_ > 0 || outstanding_ > 0);
  }
  // The blocks of all cache groups whose layers were all posted.
  uint32_t posted_blocks() const;
  // The part of the granted pieces that is not written.
  double unwritten_part() const;
  Time deadline() const { return deadline_; }
  uint32_t resent_blocks() const { return resent_; }
  uint64_t bytes() const { return bytes_; }

 private:
  void Send(ControlMessage message, Time now);
  void SendOffer(Time now);
  Status CheckChunk(const Chunk& chunk) const;
  void OnGrant(const Grant& grant, Time now);
  void OnAck(const Ack& ack, Time now);
  void OnResend(const Resend& resend, Time now);
  // Emits PostBlocks for the ready layer groups of blocks [first, end) of the prompt.
  void PostReady(uint32_t first, uint32_t end);
  // Whether ready pieces can be held longer without delaying the end of the hand-off.
  bool CanWait(Time now) const;
  // Emits PostBlocks for the granted ones of `blocks`, blocks of tokens whose layer groups
  // [first_group, end_group) are ready and not posted.
  void Post(std::span<const uint32_t> blocks, uint32_t first_group, uint32_t end_group);
  size_t cache_groups() const { return params_.owed.first.size(); }
  void SendSealWhenPosted(Time now);
  void SendStateAgain(Time now);
  void Park(Status reason);
  void Drain(Status outcome, Time now);
  void EndWhenDrained(Time now);
  bool live() const { return state_ == SenderState::kStreaming || state_ == SenderState::kSealed; }

  Params params_;
  const SessionTimes times_;
  SenderState state_ = SenderState::kOffered;
  std::vector<SenderAction> actions_;
  std::vector<BlockId> sources_;  // by block of tokens and cache group of blocks of tokens
  std::vector<BlockId> state_sources_;
  std::vector<uint32_t> ready_;   // layer groups, by block of tokens
  std::vector<uint32_t> posted_;  // layer groups, by block of tokens
  std::vector<LinkGroups> link_groups_;
  uint32_t peer_state_blocks_ = 0;
  PieceIndex pieces_;
  Duration group_time_{};
  bool holds_back_ = false;
  // The progress of the prompt's computation, counted in (block, layer group) pairs: ready in all,
  // ready at first, and added last.
  uint64_t ready_groups_ = 0;
  uint64_t first_groups_ = 0;
  uint64_t last_groups_ = 0;
  Time first_ready_{};
  Grant grant_;
  baton::Seal seal_;
  bool seal_wanted_ = false;
  bool peer_answered_ = false;  // OFFER arrived: RENEW replaces its repeats
  bool drain_asked_ = false;    // by the peer's ABORT
  uint32_t ready_count_ = 0;    // blocks with every layer ready
  uint64_t unposted_ = 0;       // pieces in a PostBlocks, before OnPosted
  uint64_t to_post_ = 0;        // granted pieces, not in a PostBlocks yet
  uint32_t outstanding_ = 0;    // pieces in a PostBlocks that have not ended
  uint32_t resend_attempt_ = 0;
  uint32_t resent_ = 0;
  uint64_t bytes_ = 0;
  Status outcome_;
  Time deadline_ = kNever;
  Time last_heard_;
  Time last_sent_;
  Time drain_until_ = kNever;
};

}  // namespace baton
