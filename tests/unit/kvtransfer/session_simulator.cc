#include "tests/unit/kvtransfer/session_simulator.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace baton {
namespace {

constexpr Duration kTimeout = std::chrono::milliseconds(1500);
// By then every session must have ended, whatever the faults.
constexpr Duration kEndOfTheWorld = std::chrono::seconds(8);

}  // namespace

SessionSimulator::SessionSimulator(uint64_t seed, const Faults& faults, uint32_t sessions)
    : random_(seed),
      faults_(faults),
      session_count_(sessions),
      senders_(sessions),
      receivers_(sessions),
      source_(size_t{sessions} * kBlocks * kLinks),
      destination_(size_t{sessions} * kBlocks * kLinks) {
  times_.renew = std::chrono::milliseconds(50);
  times_.lease = std::chrono::milliseconds(400);
  times_.drain = std::chrono::milliseconds(100);
  times_.fence = std::chrono::milliseconds(100);
}

bool SessionSimulator::Chance(double probability) {
  return std::uniform_real_distribution<double>(0, 1)(random_) < probability;
}

Duration SessionSimulator::Delay() {
  return std::chrono::microseconds(random_() % (faults_.max_delay_ms * 1000 + 1));
}

void SessionSimulator::At(Duration delay, std::function<void()> event) {
  events_.emplace(now_ + delay, std::move(event));
}

void SessionSimulator::Violate(const std::string& what) {
  if (violation_.empty())
    violation_ = fmt::format("{} at {:.3f} s", what, ToSeconds(now_ - Time{}));
}

uint64_t SessionSimulator::Expected(uint32_t session, uint32_t block, uint32_t link) const {
  return 1000 + (session * kBlocks + block) * kLinks + link;
}

void SessionSimulator::Run() {
  const Time end = now_ + kEndOfTheWorld;
  for (uint32_t session = 0; session < session_count_; ++session) {
    At(Delay(), [this, session] { StartSession(session); });
  }
  At(Duration{}, [this] { Tick(); });
  while (!events_.empty() && violation_.empty()) {
    const auto first = events_.begin();
    if (first->first > end) break;
    now_ = first->first;
    const std::function<void()> event = std::move(first->second);
    events_.erase(first);
    event();
  }
  for (uint32_t session = 0; session < session_count_ && violation_.empty(); ++session) {
    const auto& sender = senders_[session].machine;
    const auto& receiver = receivers_[session].machine;
    if (sender) Violate(fmt::format("sender session {} is {}", session, Name(sender->state())));
    if (receiver && !receiver->ended() && receiver->state() != ReceiverState::kQuarantined) {
      Violate(fmt::format("receiver session {} is {}", session, Name(receiver->state())));
    }
    if (receiver && receiver->state() == ReceiverState::kQuarantined) ++quarantined_;
  }
  std::erase_if(writes_, [](const auto& entry) { return entry.second.in_network; });
  if (violation_.empty() && !writes_.empty()) Violate("a write never ended");
}

void SessionSimulator::Tick() {
  for (uint32_t session = 0; session < session_count_; ++session) {
    if (senders_[session].machine) senders_[session].machine->OnTime(now_);
    ActSender(session);
    if (receivers_[session].machine) receivers_[session].machine->OnTime(now_);
    ActReceiver(session);
    Step(session);
  }
  At(std::chrono::milliseconds(10), [this] { Tick(); });
}

// Random aborts by the workers, and random crashes.
void SessionSimulator::Step(uint32_t session) {
  const Status reason = MakeStatus(StatusCode::kCancelled, "the user left");
  if (Chance(faults_.abort) && senders_[session].machine) {
    senders_[session].machine->Abort(reason, now_);
    ActSender(session);
  }
  if (Chance(faults_.abort) && receivers_[session].machine) {
    receivers_[session].machine->Abort(reason, now_);
    ActReceiver(session);
  }
  if (Chance(faults_.crash)) CrashSender();
  if (Chance(faults_.crash)) CrashReceiver();
}

void SessionSimulator::StartSession(uint32_t session) {
  for (uint32_t i = 0; i < kBlocks * kLinks; ++i) {
    source_[session * kBlocks * kLinks + i] = {junk_++, session};
  }
  SenderSession::Params params;
  params.total_tokens = kBlocks;
  params.owed = Owed();
  params.timeout = kTimeout;
  params.layer_groups = kLayerGroups;
  params.state_blocks = kSourceState;
  senders_[session] = {std::make_unique<SenderSession>(params, times_, now_), 0, false, false};
  ActSender(session);
  At(Delay(), [this, session] { FeedSender(session); });
}

// The prefill worker computes one block after the other. Sometimes it reports the first layer group
// of a block before the last one is computed.
void SessionSimulator::FeedSender(uint32_t session) {
  SenderSlot& slot = senders_[session];
  if (!slot.machine) return;
  if (slot.chunks_given < kBlocks) {
    const uint32_t index = slot.chunks_given;
    slot.half_given = !slot.half_given && Chance(0.5);
    const uint32_t groups = slot.half_given ? 1 : kLayerGroups;
    // Blocks that are not owed have no memory any more.
    std::array<BlockId, kBlockGroups> blocks;
    blocks.fill(BlockId(UINT32_MAX));
    for (uint32_t group = 0; group < kBlockGroups; ++group) {
      if (index >= Owed().first[group]) blocks[group] = BlockOf(session, index, group);
    }
    const std::vector<BlockId> state =
        index == kBlocks - 1 ? StateOf(session, kSourceState) : std::vector<BlockId>();
    for (uint32_t link = 0; link < groups * kCacheGroups; ++link) {
      const uint32_t group = GroupsOf(link).cache_group;
      const std::vector<BlockId> block = {BlockOf(session, index, group)};
      for (const BlockId written : group == kStateGroup ? state : block) {
        source_[CellOf(written, link)].value = Expected(session, index, link);
      }
    }
    if (!slot.machine->AddBlocks({index, blocks, groups, state}, now_).ok()) Violate("AddBlocks");
    if (!slot.half_given) ++slot.chunks_given;
    At(Delay(), [this, session] { FeedSender(session); });
  } else if (!slot.sealed) {
    slot.sealed = true;
    slot.machine->Seal("payload", now_);
  }
  ActSender(session);
}

void SessionSimulator::CrashSender() {
  for (auto& slot : senders_) slot = {};
  // Writes that are in the network still land.
  for (auto& [id, write] : writes_) write.in_network = true;
  for (Cell& cell : source_) cell = {junk_++, std::nullopt};
  if (!Chance(faults_.lost_stream)) return;
  At(Delay(), [this] {
    for (uint32_t session = 0; session < session_count_; ++session) {
      if (!receivers_[session].machine) continue;
      receivers_[session].machine->OnPeerLost(MakeStatus(StatusCode::kUnavailable, "stream lost"),
                                              now_);
      ActReceiver(session);
    }
  });
}

void SessionSimulator::CrashReceiver() {
  ++receiver_life_;
  for (uint32_t session = 0; session < session_count_; ++session) receivers_[session] = {};
  windows_.clear();
  for (Cell& cell : destination_) cell = {junk_++, std::nullopt};
  if (!Chance(faults_.lost_stream)) return;
  At(Delay(), [this] {
    for (uint32_t session = 0; session < session_count_; ++session) {
      if (!senders_[session].machine) continue;
      senders_[session].machine->OnPeerLost(MakeStatus(StatusCode::kUnavailable, "stream lost"),
                                            now_);
      ActSender(session);
    }
  });
}

void SessionSimulator::ToReceiver(uint32_t session, const ControlMessage& message) {
  for (int copies = Chance(faults_.duplicate) ? 2 : 1; copies > 0; --copies) {
    if (Chance(faults_.drop)) continue;
    At(Delay(), [this, session, message] { DeliverToReceiver(session, message); });
  }
}

void SessionSimulator::ToSender(uint32_t session, const ControlMessage& message) {
  for (int copies = Chance(faults_.duplicate) ? 2 : 1; copies > 0; --copies) {
    if (Chance(faults_.drop)) continue;
    At(Delay(), [this, session, message] { DeliverToSender(session, message); });
  }
}

void SessionSimulator::DeliverToReceiver(uint32_t session, const ControlMessage& message) {
  ReceiverSlot& slot = receivers_[session];
  if (slot.machine) {
    slot.machine->OnMessage(message, now_);
  } else if (const auto* offer = std::get_if<Offer>(&message)) {
    slot.machine = std::make_unique<ReceiverSession>(*offer, Owed(), times_, now_);
  } else if (const auto answer = AnswerWithoutReceiver(message); answer.has_value()) {
    return ToSender(session, *answer);
  }
  ActReceiver(session);
}

void SessionSimulator::DeliverToSender(uint32_t session, const ControlMessage& message) {
  SenderSlot& slot = senders_[session];
  if (slot.machine) {
    if (std::holds_alternative<baton::Grant>(message)) {
      std::vector<LinkGroups> links;
      for (uint32_t link = 0; link < kLinks; ++link) links.push_back(GroupsOf(link));
      slot.machine->SetLinks(links, kTargetState);
      slot.machine->SetGroupTime(Chance(0.5) ? Duration{} : Delay());
    }
    slot.machine->OnMessage(message, now_);
    return ActSender(session);
  }
  const std::optional<ControlMessage> answer = AnswerWithoutSender(message);
  if (answer.has_value()) ToReceiver(session, *answer);
}

void SessionSimulator::ActSender(uint32_t session) {
  while (senders_[session].machine) {
    std::vector<SenderAction> actions = senders_[session].machine->TakeActions();
    if (actions.empty()) return;
    for (SenderAction& action : actions) {
      if (senders_[session].machine) Act(session, action);
    }
  }
}

void SessionSimulator::Act(uint32_t session, SenderAction& action) {
  if (auto* send = std::get_if<SendControl>(&action)) {
    ToReceiver(session, send->message);
  } else if (auto* post = std::get_if<PostBlocks>(&action)) {
    Post(session, *post);
  } else if (std::holds_alternative<StartWrites>(action)) {
    for (const uint64_t id : std::exchange(senders_[session].held, {})) {
      if (writes_.contains(id)) Launch(id);
    }
  } else if (std::holds_alternative<StopWrites>(action)) {
    if (!Chance(faults_.stall_write)) EndWritesOf(session);
  } else if (std::holds_alternative<FenceWrites>(action)) {
    EndWritesOf(session);
  } else if (std::holds_alternative<ReportRefused>(action)) {
    // The router has no other decode worker, so the request is aborted.
    senders_[session].machine->Abort(MakeStatus(StatusCode::kUnavailable, "refused"), now_);
  } else if (auto* end = std::get_if<ReportEnd>(&action)) {
    for (const auto& [id, write] : writes_) {
      if (write.session == session && !write.in_network)
        Violate(fmt::format("session {} ended with writes", session));
    }
    if (end->status.ok()) ++sender_ok_;
    GiveBackSource(session);
  }
}

void SessionSimulator::GiveBackSource(uint32_t session) {
  senders_[session] = {};
  for (uint32_t i = 0; i < kBlocks * kLinks; ++i) {
    source_[session * kBlocks * kLinks + i] = {junk_++, std::nullopt};
  }
}

void SessionSimulator::Post(uint32_t session, const PostBlocks& post) {
  for (const uint32_t block : post.blocks) {
    for (uint32_t group = post.first_group; group < post.end_group; ++group) {
      PostPiece(session, post, block, group * kCacheGroups + post.cache_group);
    }
  }
}

void SessionSimulator::PostPiece(uint32_t session,
                                 const PostBlocks& post,
                                 uint32_t block,
                                 uint32_t link) {
  SenderSession& machine = *senders_[session].machine;
  std::vector<BlockPair> pairs;
  if (post.cache_group == kStateGroup) {
    pairs = PairsOfState(machine.state_blocks(), machine.grant().blocks[kStateGroup]);
  } else {
    pairs = {machine.pair(block, post.cache_group)};
  }
  Write write;
  write.session = session;
  write.key = machine.grant().window_key;
  write.link = link;
  write.block = block;
  for (const BlockPair& pair : pairs) {
    if (pair.destination != kNoBlock) write.destinations.push_back(CellOf(pair.destination, link));
    if (pair.source == kNoBlock && post.cache_group == kStateGroup) continue;
    write.sources.push_back(CellOf(pair.source, link));
    if (write.sources.back() >= source_.size()) return Violate("a block was read that is not owed");
    // What is not computed yet has a larger value.
    write.value = std::max(write.value, source_[write.sources.back()].value);
  }
  const uint64_t checksum = write.value;
  const uint64_t id = next_write_++;
  writes_[id] = write;
  machine.OnPosted(link, block, {&checksum, 1}, kPieceBytes, now_);
  if (post.held) {
    senders_[session].held.push_back(id);
  } else {
    Launch(id);
  }
}

void SessionSimulator::Launch(uint64_t id) {
  if (stalled_session_ == writes_[id].session) return;
  if (Chance(faults_.stall_write)) {
    // It may land long after both sides gave it up.
    const auto late = std::chrono::milliseconds(random_() % 3000);
    if (Chance(0.5)) At(late, [this, id] { Land(id, false); });
    return;
  }
  if (Chance(faults_.lose_write)) {
    At(Delay(), [this, id] { EndWrite(id, false); });
    return;
  }
  At(Delay(), [this, id] { Land(id, false); });
}

void SessionSimulator::Land(uint64_t id, bool repeated) {
  const auto found = writes_.find(id);
  if (found == writes_.end()) return;  // taken back before it was read
  const Write write = found->second;
  // A source must not be read after it was released.
  for (const uint64_t source : write.sources) {
    if (!write.in_network && source_[source].owner != write.session) {
      return Violate("a freed source was read");
    }
  }
  if (!windows_.contains(write.key)) return EndWrite(id, false);
  const uint64_t checksum = write.value + (Chance(faults_.corrupt_write) ? 1000000 : 0);
  for (const uint64_t destination : write.destinations) {
    Cell& cell = destination_[destination];
    if (cell.owner != write.session) return Violate("a write landed in a released block");
    cell.value = checksum;
  }
  PieceArrival arrival;
  arrival.link = write.link;
  arrival.first = write.block;
  arrival.count = 1;
  arrival.bytes = kPieceBytes;
  arrival.checksums = {&checksum, 1};
  if (!repeated && Chance(faults_.repeat_write)) {
    At(Delay(), [this, id] { Land(id, true); });
  } else {
    EndWrite(id, true);
  }
  if (receivers_[write.session].machine && receivers_[write.session].key == write.key) {
    receivers_[write.session].machine->OnArrival(arrival, now_);
    ActReceiver(write.session);
  }
}

void SessionSimulator::EndWrite(uint64_t id, bool done) {
  const auto found = writes_.find(id);
  if (found == writes_.end()) return;
  const Write write = found->second;
  writes_.erase(found);
  SenderSlot& slot = senders_[write.session];
  if (!slot.machine || write.in_network) return;
  if (done) {
    slot.machine->OnWritten(1, kPieceBytes, now_);
  } else {
    slot.machine->OnWriteLost(1, MakeStatus(StatusCode::kUnavailable, "write lost"), now_);
  }
  ActSender(write.session);
}

void SessionSimulator::EndWritesOf(uint32_t session) {
  std::vector<uint64_t> ids;
  for (const auto& [id, write] : writes_) {
    if (write.session == session && !write.in_network) ids.push_back(id);
  }
  for (const uint64_t id : ids) EndWrite(id, false);
}

void SessionSimulator::ActReceiver(uint32_t session) {
  while (receivers_[session].machine) {
    std::vector<ReceiverAction> actions = receivers_[session].machine->TakeActions();
    if (actions.empty()) return;
    for (ReceiverAction& action : actions) {
      if (receivers_[session].machine) Act(session, action);
    }
  }
}

void SessionSimulator::Act(uint32_t session, ReceiverAction& action) {
  ReceiverSlot& slot = receivers_[session];
  if (auto* send = std::get_if<SendControl>(&action)) {
    ToSender(session, send->message);
  } else if (std::holds_alternative<ReportOffer>(action)) {
    At(Delay(), [this, session, life = receiver_life_] {
      if (life == receiver_life_) Grant(session);
    });
  } else if (std::holds_alternative<OpenWindows>(action)) {
    windows_.insert(slot.key);
  } else if (std::holds_alternative<CloseWindows>(action)) {
    CloseWindow(session);
  } else if (std::holds_alternative<ReportCommitted>(action)) {
    CheckCommitted(session);
    GiveBackDestination(session);
  } else if (std::holds_alternative<ReportReleased>(action)) {
    GiveBackDestination(session);
  }
}

void SessionSimulator::Grant(uint32_t session) {
  ReceiverSlot& slot = receivers_[session];
  if (!slot.machine || slot.machine->state() != ReceiverState::kPending) return;
  if (Chance(faults_.refuse)) {
    slot.machine->Refuse(MakeStatus(StatusCode::kResourceExhausted, "full"), now_);
    return ActReceiver(session);
  }
  slot.key = next_key_++;
  ReceiverSession::Reservation reservation;
  reservation.grant.window_key = slot.key;
  reservation.grant.cached_blocks = session % 4;
  reservation.grant.links = kLinks;
  for (uint32_t link = 0; link < kLinks; ++link) {
    reservation.links.push_back({GroupsOf(link), kPieceBytes});
  }
  for (uint32_t group = 0; group < kBlockGroups; ++group) {
    std::vector<BlockId>& blocks = reservation.grant.blocks.emplace_back();
    for (uint32_t block = Owed().from(group, session % 4); block < kBlocks; ++block) {
      blocks.push_back(BlockOf(session, block, group));
    }
  }
  reservation.grant.blocks.push_back(StateOf(session, kTargetState));
  reservation.state_blocks = kTargetState;
  for (uint32_t i = 0; i < kBlocks * kLinks; ++i) {
    destination_[session * kBlocks * kLinks + i] = {junk_++, session};
  }
  if (!slot.machine->Grant(std::move(reservation), now_).ok()) Violate("Grant");
  ActReceiver(session);
}

void SessionSimulator::CloseWindow(uint32_t session) {
  if (Chance(faults_.never_close)) return;
  const uint64_t key = receivers_[session].key;
  // Some slow closes end in time, while writes still land.
  const Duration delay =
      Chance(faults_.slow_close) ? std::chrono::milliseconds(random_() % 500) : Duration{};
  At(delay, [this, session, key, life = receiver_life_] {
    windows_.erase(key);
    if (life != receiver_life_ || !receivers_[session].machine) return;
    receivers_[session].machine->OnWindowsClosed(OkStatus(), now_);
    ActReceiver(session);
  });
}

void SessionSimulator::CheckCommitted(uint32_t session) {
  ++committed_;
  if (!committed_sessions_.insert(session).second) return Violate("committed twice");
  const uint32_t cached = receivers_[session].machine->grant().cached_blocks;
  const auto check = [&](BlockId at, uint32_t block, uint32_t link) {
    if (destination_[CellOf(at, link)].value == Expected(session, block, link)) return;
    Violate(fmt::format("session {} committed wrong bytes", session));
  };
  for (uint32_t link = 0; link < kLinks; ++link) {
    const uint32_t group = GroupsOf(link).cache_group;
    if (group == kStateGroup) {
      for (const BlockId block : StateOf(session, kTargetState)) check(block, kBlocks - 1, link);
      continue;
    }
    for (uint32_t block = Owed().from(group, cached); block < kBlocks; ++block) {
      check(BlockOf(session, block, group), block, link);
    }
  }
}

// From here on the blocks belong to another session. This session stays, to answer late messages.
void SessionSimulator::GiveBackDestination(uint32_t session) {
  for (uint32_t i = 0; i < kBlocks * kLinks; ++i) {
    destination_[session * kBlocks * kLinks + i] = {junk_++, std::nullopt};
  }
}

}  // namespace baton
