#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <queue>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "kvtransfer/session/receiver_session.h"
#include "kvtransfer/session/sender_session.h"

namespace baton {

// The faults of a simulation; each is a probability per message, write or step.
struct Faults {
  double drop = 0;
  double duplicate = 0;
  double corrupt_write = 0;  // lands with other bytes
  double repeat_write = 0;   // lands a second time, later
  double lose_write = 0;     // never lands; the sender is notified
  // Never lands, or lands late, perhaps after the sender gave it up.
  double stall_write = 0;
  double slow_close = 0;   // closing a window takes up to 500 ms
  double never_close = 0;  // closing a window cannot be proven
  double crash = 0;        // at each step, of either process; it restarts at once
  double abort = 0;        // at each step, by either worker
  double refuse = 0;       // of an offer
  double lost_stream = 0;  // that the other side is notified of a crash
  int max_delay_ms = 20;   // of messages and writes, so they overtake each other
};

// Sender and receiver sessions of two workers in one simulation: virtual time, a network that
// loses, repeats and reorders messages, and memory that is reused as soon as it is released. Every
// run is a function of its seed.
class SessionSimulator final {
 public:
  SessionSimulator(uint64_t seed, const Faults& faults, uint32_t sessions);

  // Writes of this session never end by themselves.
  void StallWritesOf(uint32_t session) { stalled_session_ = session; }
  // Runs until no event is left, for at most 8 s of virtual time.
  void Run();

  // The first broken invariant, or empty.
  const std::string& violation() const { return violation_; }
  uint32_t committed() const { return committed_; }
  uint32_t sender_ok() const { return sender_ok_; }
  bool is_committed(uint32_t session) const { return committed_sessions_.contains(session); }
  uint32_t quarantined() const { return quarantined_; }

 private:
  static constexpr uint32_t kBlocks = 5;
  static constexpr uint32_t kLayerGroups = 2;
  static constexpr uint32_t kBlockGroups = 2;  // cache groups; the second one has a window
  static constexpr uint32_t kFirstInWindow = 2;
  static constexpr uint32_t kStateGroup = kBlockGroups;
  static constexpr uint32_t kCacheGroups = kBlockGroups + 1;
  // The arena blocks of a state at the sender and at the receiver: those that the cache group
  // would have for the first blocks of tokens.
  static constexpr uint32_t kSourceState = 2;
  static constexpr uint32_t kTargetState = 3;
  static constexpr uint32_t kLinks = kLayerGroups * kCacheGroups;
  static constexpr uint64_t kPieceBytes = 100;

  // The memory of one piece (block, link): its content, and the session that may write it.
  struct Cell {
    uint64_t value = 0;
    std::optional<uint32_t> owner;
  };
  struct Write {
    uint32_t session = 0;
    uint64_t key = 0;
    uint32_t link = 0;
    uint32_t block = 0;
    bool in_network = false;  // its sender has crashed
    uint64_t value = 0;
    std::vector<uint64_t> sources;  // indices of the cells; more than one of a state
    std::vector<uint64_t> destinations;
  };
  struct SenderSlot {
    std::unique_ptr<SenderSession> machine;
    uint32_t chunks_given = 0;
    bool half_given = false;  // the first layer group of the next block
    bool sealed = false;
    std::vector<uint64_t> held = {};  // held writes, which may not move yet
  };
  struct ReceiverSlot {
    std::unique_ptr<ReceiverSession> machine;
    uint64_t key = 0;
  };

  bool Chance(double probability);
  Duration Delay();
  void At(Duration delay, std::function<void()> event);
  void Violate(const std::string& what);

  void StartSession(uint32_t session);
  void FeedSender(uint32_t session);
  void Step(uint32_t session);
  void CrashSender();
  void CrashReceiver();
  void ToReceiver(uint32_t session, const ControlMessage& message);
  void ToSender(uint32_t session, const ControlMessage& message);
  void DeliverToReceiver(uint32_t session, const ControlMessage& message);
  void DeliverToSender(uint32_t session, const ControlMessage& message);
  void ActSender(uint32_t session);
  void ActReceiver(uint32_t session);
  void Act(uint32_t session, SenderAction& action);
  void Act(uint32_t session, ReceiverAction& action);
  void Post(uint32_t session, const PostBlocks& post);
  void PostPiece(uint32_t session, const PostBlocks& post, uint32_t block, uint32_t link);
  void Launch(uint64_t id);
  void Land(uint64_t id, bool repeated);
  void EndWrite(uint64_t id, bool done);
  void EndWritesOf(uint32_t session);
  void Grant(uint32_t session);
  void CloseWindow(uint32_t session);
  void GiveBackSource(uint32_t session);
  void GiveBackDestination(uint32_t session);
  void CheckCommitted(uint32_t session);
  void Tick();
  uint64_t Expected(uint32_t session, uint32_t block, uint32_t link) const;
  static OwedBlocks Owed() {
    return {.count = kBlocks, .first = {0, kFirstInWindow, kBlocks - 1}, .state = true};
  }
  static LinkGroups GroupsOf(uint32_t link) { return {link / kCacheGroups, link % kCacheGroups}; }
  // The arena block of a session's block of tokens in a cache group, on both sides.
  static BlockId BlockOf(uint32_t session, uint32_t block, uint32_t cache_group) {
    return BlockId((session * kBlocks + block) * kCacheGroups + cache_group);
  }
  static std::vector<BlockId> StateOf(uint32_t session, uint32_t blocks) {
    std::vector<BlockId> state;
    for (uint32_t i = 0; i < blocks; ++i) state.push_back(BlockOf(session, i, kStateGroup));
    return state;
  }
  // The cell of the piece of an arena block on `link`.
  static uint64_t CellOf(BlockId block, uint32_t link) {
    return uint64_t{block.value()} * kLayerGroups + GroupsOf(link).layer_group;
  }

  std::mt19937_64 random_;
  const Faults faults_;
  const uint32_t session_count_;
  SessionTimes times_;
  Time now_{std::chrono::hours(1)};
  std::multimap<Time, std::function<void()>> events_;
  std::vector<SenderSlot> senders_;
  std::vector<ReceiverSlot> receivers_;
  std::vector<Cell> source_;
  std::vector<Cell> destination_;
  std::map<uint64_t, Write> writes_;
  std::set<uint64_t> windows_;  // keys of the open windows
  uint64_t next_write_ = 1;
  uint64_t next_key_ = 1;
  uint64_t junk_ = 1u << 30;
  uint32_t receiver_life_ = 0;
  std::optional<uint32_t> stalled_session_;
  std::string violation_;
  std::set<uint32_t> committed_sessions_;
  uint32_t committed_ = 0;
  uint32_t sender_ok_ = 0;
  uint32_t quarantined_ = 0;
};

}  // namespace baton
