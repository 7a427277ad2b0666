// Simulates one hand-off. The input determines what peers, the network and both workers do. A
// message that decodes must encode back. No order of events may break a session. No bytes may be
// committed that were not sent. After the end of the input no more faults happen, and both sessions
// must end.

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/check.h"
#include "kvtransfer/messages/codec.h"
#include "kvtransfer/session/receiver_session.h"
#include "kvtransfer/session/sender_session.h"

namespace baton {
namespace {

constexpr uint32_t kBlocks = 4;
constexpr uint32_t kLayerGroups = 2;
constexpr uint32_t kStateGroup = 1;  // of two cache groups
constexpr uint32_t kLinks = kLayerGroups * 2;
// The arena blocks of a state at the sender and at the receiver.
constexpr uint32_t kSourceState = 2;
constexpr uint32_t kTargetState = 3;
constexpr uint64_t kPieceBytes = 100;
constexpr uint64_t kKey = 77;
constexpr Duration kTurn = std::chrono::milliseconds(100);

// Each input byte modulo kCount selects one of these events.
enum class Event : uint8_t {
  // Both ends receive a message that neither end sent. The input holds its length in two bytes, low
  // byte first, and then its bytes.
  kOutside,
  kToReceiver,
  kToSender,
  kLoseToReceiver,
  kLoseToSender,
  kRepeatToReceiver,
  kRepeatToSender,
  kCompute,      // the prefill worker computes the next layer group
  kSeal,         // the prefill worker has sampled its first token
  kGrant,        // the decode worker grants; the next byte gives the number of cached blocks
  kRefuse,       // the decode worker refuses the offer
  kLand,         // the oldest write arrives
  kLandDamaged,  // the oldest write arrives with other bytes
  kLandTwice,    // the oldest write arrives and will arrive again
  kLoseWrite,
  kClose,         // the windows close, if the receiver has requested it
  kCannotClose,   // it cannot be proven that the windows are closed
  kTime,          // time passes; the next byte gives the number of turns
  kSenderAborts,  // the prefill worker aborts
  kReceiverAborts,
  kOfferAgain,
  kSenderAlone,  // the sender's end of the control stream breaks
  kReceiverAlone,
  kCount,
};

LinkGroups GroupsOf(uint32_t link) {
  return {link / 2, link % 2};
}

OwedBlocks Owed() {
  return {.count = kBlocks, .first = {0, kBlocks - 1}, .state = true};
}

// The content that a write of the session carries.
uint64_t Content(uint32_t block, uint32_t link) {
  return 1000 + uint64_t{block} * kLinks + link;
}

// Simulates a prefill worker with its KvSender and a decode worker with its KvReceiver in one
// hand-off.
class World {
 public:
  explicit World(std::string_view input) : input_(input) {
    SenderSession::Params params;
    params.total_tokens = kBlocks;
    params.owed = Owed();
    params.timeout = std::chrono::seconds(10);
    params.layer_groups = kLayerGroups;
    params.state_blocks = kSourceState;
    sender_.emplace(params, times_, now_);
    ActSender();
  }

  void Run() {
    const bool undisturbed = input_.empty();
    while (!input_.empty())
      Do(static_cast<Event>(NextByte() % static_cast<uint8_t>(Event::kCount)));
    for (int turn = 0; turn < 500 && !over(); ++turn) GoOn();
    BATON_CHECK(!sender_.has_value(), "the sender's session is {}", Name(sender_->state()));
    BATON_CHECK(!receiver_.has_value() || receiver_->ended(),
                "the receiver's session is {}",
                Name(receiver_->state()));
    BATON_CHECK(committed_ || !undisturbed, "nothing was committed although no fault happened");
  }

 private:
  struct Write {
    uint32_t block = 0;  // index among those granted in its cache group
    uint32_t link = 0;
    uint64_t content = 0;
    bool granted_here = false;  // the destination is from the receiver's grant, not an outsider's
    bool held = false;
  };

  bool over() const {
    return !sender_.has_value() && (!receiver_.has_value() || receiver_->ended());
  }
  uint8_t NextByte() {
    if (input_.empty()) return 0;
    const auto byte = static_cast<uint8_t>(input_.front());
    input_.remove_prefix(1);
    return byte;
  }

  void Do(Event event);
  void DoWorkers(Event event);
  void GoOn();
  void Outside();
  void Compute();
  void GrantBlocks(uint32_t cached);
  void Land(bool damaged, bool stays);
  void LoseWrite();
  void Close();
  void Tick();

  void Send(std::deque<std::string>& to, const ControlMessage& message) {
    to.push_back(EncodeEnvelope({SessionId(1), Epoch(1), message}));
  }
  void Deliver(std::deque<std::string>& from, bool repeat);
  void ToReceiver(const ControlMessage& message);
  void ToSender(const ControlMessage& message);
  void ActSender();
  void ActReceiver();
  void Act(SenderAction& action);
  void Act(ReceiverAction& action);
  void Post(const PostBlocks& post);

  std::string_view input_;
  const SessionTimes times_;
  Time now_{std::chrono::hours(1)};
  bool outsiders_ = false;               // a kOutside message has been delivered
  std::optional<SenderSession> sender_;  // destroyed at its end, as KvSender does
  std::optional<ReceiverSession> receiver_;
  std::deque<std::string> to_receiver_;
  std::deque<std::string> to_sender_;
  std::deque<Write> writes_;
  uint32_t computed_ = 0;  // number of computed layer groups of all blocks
  bool offered_ = false;   // the decode worker has an offer without an answer
  bool window_open_ = false;
  bool close_wanted_ = false;
  bool committed_ = false;
  std::array<std::array<uint64_t, kLinks>, kBlocks> landed_{};  // by Write::block
};

void World::Do(Event event) {
  switch (event) {
    case Event::kOutside:
      return Outside();
    case Event::kToReceiver:
      return Deliver(to_receiver_, false);
    case Event::kToSender:
      return Deliver(to_sender_, false);
    case Event::kLoseToReceiver:
      if (!to_receiver_.empty()) to_receiver_.pop_front();
      return;
    case Event::kLoseToSender:
      if (!to_sender_.empty()) to_sender_.pop_front();
      return;
    case Event::kRepeatToReceiver:
      return Deliver(to_receiver_, true);
    case Event::kRepeatToSender:
      return Deliver(to_sender_, true);
    case Event::kLand:
      return Land(false, false);
    case Event::kLandDamaged:
      return Land(true, false);
    case Event::kLandTwice:
      return Land(false, true);
    case Event::kLoseWrite:
      return LoseWrite();
    case Event::kClose:
      return Close();
    case Event::kTime:
      for (int turns = NextByte(); turns > 0; --turns) Tick();
      return;
    default:
      return DoWorkers(event);
  }
}

void World::DoWorkers(Event event) {
  const Status reason = MakeStatus(StatusCode::kCancelled, "given up");
  if (event == Event::kCompute) {
    Compute();
  } else if (event == Event::kGrant) {
    GrantBlocks(NextByte() % (kBlocks + 1));
  } else if (event == Event::kRefuse && receiver_ && std::exchange(offered_, false)) {
    receiver_->Refuse(reason, now_);
  } else if (event == Event::kCannotClose && close_wanted_) {
    receiver_->OnWindowsClosed(reason, now_);
  } else if (event == Event::kReceiverAborts && receiver_) {
    receiver_->Abort(reason, now_);
  } else if (event == Event::kReceiverAlone && receiver_) {
    receiver_->OnPeerLost(reason, now_);
  } else if (event == Event::kSeal && sender_) {
    sender_->Seal("first token", now_);
  } else if (event == Event::kSenderAborts && sender_) {
    sender_->Abort(reason, now_);
  } else if (event == Event::kOfferAgain && sender_) {
    sender_->OfferAgain(std::chrono::seconds(10), now_);
  } else if (event == Event::kSenderAlone && sender_) {
    sender_->OnPeerLost(reason, now_);
  }
  ActSender();
  ActReceiver();
}

// One turn without faults: everything that can proceed does so.
void World::GoOn() {
  Compute();
  if (sender_ && computed_ == kBlocks * kLayerGroups) sender_->Seal("first token", now_);
  if (sender_ && sender_->state() == SenderState::kRefused) {
    sender_->Abort(MakeStatus(StatusCode::kUnavailable, "no other worker"), now_);
  }
  ActSender();
  GrantBlocks(1);
  for (size_t left = to_receiver_.size(); left > 0; --left) Deliver(to_receiver_, false);
  for (size_t left = writes_.size(); left > 0; --left) Land(false, false);
  Close();
  for (size_t left = to_sender_.size(); left > 0; --left) Deliver(to_sender_, false);
  Tick();
}

void World::Outside() {
  const size_t low = NextByte();
  const size_t size = low | size_t{NextByte()} << 8;
  const std::string_view bytes = input_.substr(0, size);
  input_.remove_prefix(bytes.size());
  const StatusOr<Envelope> envelope = DecodeEnvelope(bytes);
  if (!envelope.ok()) return;
  const StatusOr<Envelope> again = DecodeEnvelope(EncodeEnvelope(*envelope));
  BATON_CHECK(again.ok() && *again == *envelope,
              "a message changed when it was encoded and decoded");
  outsiders_ = true;
  ToSender(envelope->message);
  ToReceiver(envelope->message);
}

void World::Compute() {
  if (!sender_ || computed_ == kBlocks * kLayerGroups) return;
  const BlockId block(computed_ / kLayerGroups);
  const uint32_t groups = computed_ % kLayerGroups + 1;
  const std::vector<BlockId> state(block.value() + 1 == kBlocks ? kSourceState : 0);
  if (sender_->AddBlocks({block.value(), {&block, 1}, groups, state}, now_).ok()) ++computed_;
  ActSender();
}

void World::GrantBlocks(uint32_t cached) {
  if (!receiver_ || !std::exchange(offered_, false)) return;
  ReceiverSession::Reservation reservation;
  reservation.grant.window_key = kKey;
  reservation.grant.cached_blocks = cached;
  reservation.grant.links = kLinks;
  std::vector<BlockId>& blocks = reservation.grant.blocks.emplace_back();
  for (uint32_t block = cached; block < kBlocks; ++block) blocks.emplace_back(block);
  std::vector<BlockId>& state = reservation.grant.blocks.emplace_back();
  for (uint32_t i = 0; i < kTargetState && cached < kBlocks; ++i) state.emplace_back(kBlocks + i);
  reservation.state_blocks = kTargetState;
  for (uint32_t link = 0; link < kLinks; ++link) {
    reservation.links.push_back({GroupsOf(link), kPieceBytes});
  }
  (void)receiver_->Grant(std::move(reservation), now_);
  ActReceiver();
}

void World::Land(bool damaged, bool stays) {
  if (writes_.empty()) return;
  const Write write = writes_.front();
  writes_.pop_front();
  if (write.held) return writes_.push_back(write);
  const bool lands = window_open_ && write.granted_here;
  if (lands) {
    const uint64_t content = write.content + (damaged ? 1 : 0);
    landed_[write.block][write.link] = content;
    receiver_->OnArrival({.link = write.link,
                          .first = write.block,
                          .count = 1,
                          .bytes = kPieceBytes,
                          .checksums = {&content, 1}},
                         now_);
    ActReceiver();
  }
  if (lands && stays) return writes_.push_back(write);
  if (lands) {
    sender_->OnWritten(1, kPieceBytes, now_);
  } else {
    sender_->OnWriteLost(1, MakeStatus(StatusCode::kNotFound, "no such window"), now_);
  }
  ActSender();
}

void World::LoseWrite() {
  if (writes_.empty()) return;
  writes_.pop_front();
  sender_->OnWriteLost(1, MakeStatus(StatusCode::kUnavailable, "lost"), now_);
  ActSender();
}

void World::Close() {
  if (!std::exchange(close_wanted_, false)) return;
  window_open_ = false;
  receiver_->OnWindowsClosed(OkStatus(), now_);
  ActReceiver();
}

void World::Tick() {
  now_ += kTurn;
  if (sender_) sender_->OnTime(now_);
  ActSender();
  if (receiver_) receiver_->OnTime(now_);
  ActReceiver();
}

void World::Deliver(std::deque<std::string>& from, bool repeat) {
  if (from.empty()) return;
  const StatusOr<Envelope> envelope = DecodeEnvelope(from.front());
  BATON_CHECK(envelope.ok(), "{}", Message(envelope.status()));
  if (!repeat) from.pop_front();
  &from == &to_receiver_ ? ToReceiver(envelope->message) : ToSender(envelope->message);
}

// Handles a message as KvReceiver does, also without a session.
void World::ToReceiver(const ControlMessage& message) {
  if (receiver_) {
    receiver_->OnMessage(message, now_);
  } else if (const auto* offer = std::get_if<Offer>(&message)) {
    if (offer->timeout <= Duration{} || offer->total_tokens != kBlocks) return;
    receiver_.emplace(*offer, Owed(), times_, now_);
  } else if (std::holds_alternative<Seal>(message) || std::holds_alternative<Renew>(message)) {
    Send(to_sender_, Abort{MakeStatus(StatusCode::kNotFound, "unknown")});
  }
  ActReceiver();
}

// Handles a message as KvSender does, also without a session.
void World::ToSender(const ControlMessage& message) {
  const auto* grant = std::get_if<Grant>(&message);
  if (!sender_) {
    if (std::holds_alternative<Abort>(message)) Send(to_receiver_, DrainAck{false});
    if (grant != nullptr) {
      Send(to_receiver_, Fail{MakeStatus(StatusCode::kNotFound, "unknown")});
    }
    return;
  }
  if (grant != nullptr) {
    if (grant->links != kLinks) return;
    std::vector<LinkGroups> links;
    for (uint32_t link = 0; link < kLinks; ++link) links.push_back(GroupsOf(link));
    sender_->SetLinks(std::move(links), kTargetState);
    // Odd keys stand for peers whose transport prefers bursts.
    sender_->SetGroupTime(grant->window_key % 2 == 0 ? Duration{} : std::chrono::milliseconds(50));
  }
  sender_->OnMessage(message, now_);
  ActSender();
}

void World::ActSender() {
  while (sender_) {
    std::vector<SenderAction> actions = sender_->TakeActions();
    if (actions.empty()) return;
    for (SenderAction& action : actions) {
      if (sender_) Act(action);
    }
  }
}

void World::Act(SenderAction& action) {
  if (auto* send = std::get_if<SendControl>(&action)) {
    Send(to_receiver_, send->message);
  } else if (auto* post = std::get_if<PostBlocks>(&action)) {
    Post(*post);
  } else if (std::holds_alternative<StartWrites>(action)) {
    for (Write& write : writes_) write.held = false;
  } else if (std::holds_alternative<FenceWrites>(action)) {
    // Only a fence ends the writes. StopWrites alone guarantees nothing.
    const size_t lost = std::exchange(writes_, {}).size();
    sender_->OnWriteLost(
        static_cast<uint32_t>(lost), MakeStatus(StatusCode::kAborted, "stopped"), now_);
  } else if (std::holds_alternative<ReportEnd>(action)) {
    BATON_CHECK(writes_.empty(), "the session ended with {} outstanding writes", writes_.size());
    sender_.reset();
  }
}

void World::Post(const PostBlocks& post) {
  const Grant& grant = sender_->grant();
  const bool granted_here = grant.window_key == kKey && receiver_ && receiver_->grant() == grant;
  const uint32_t first = Owed().from(post.cache_group, grant.cached_blocks);
  for (const uint32_t block : post.blocks) {
    for (uint32_t link = 0; link < kLinks; ++link) {
      const auto [layer_group, cache_group] = GroupsOf(link);
      if (cache_group != post.cache_group || layer_group < post.first_group ||
          layer_group >= post.end_group) {
        continue;
      }
      BATON_CHECK(cache_group != kStateGroup || sender_->state_blocks().size() == kSourceState,
                  "a state is sent that was not added");
      const uint64_t content = Content(first + block, link);
      writes_.push_back({block, link, content, granted_here, post.held});
      sender_->OnPosted(link, block, {&content, 1}, kPieceBytes, now_);
    }
  }
}

void World::ActReceiver() {
  while (receiver_) {
    std::vector<ReceiverAction> actions = receiver_->TakeActions();
    if (actions.empty()) return;
    for (ReceiverAction& action : actions) Act(action);
  }
}

void World::Act(ReceiverAction& action) {
  if (auto* send = std::get_if<SendControl>(&action)) {
    Send(to_sender_, send->message);
  } else if (std::holds_alternative<ReportOffer>(action)) {
    offered_ = true;
  } else if (std::holds_alternative<ReportWithdrawn>(action)) {
    offered_ = false;
  } else if (std::holds_alternative<OpenWindows>(action)) {
    window_open_ = true;
  } else if (std::holds_alternative<CloseWindows>(action)) {
    BATON_CHECK(window_open_, "the session closes windows that are not open");
    close_wanted_ = true;
  } else if (std::holds_alternative<ReportReleased>(action)) {
    BATON_CHECK(!window_open_, "blocks were released while their window is open");
  } else if (std::holds_alternative<ReportCommitted>(action)) {
    BATON_CHECK(!window_open_, "blocks were committed while their window is open");
    BATON_CHECK(!std::exchange(committed_, true), "committed twice");
    const Grant& grant = receiver_->grant();
    // A SEAL from outside may contain the checksums of damaged writes, so this check needs a
    // session without messages from outside.
    for (uint32_t link = 0; link < kLinks && !outsiders_; ++link) {
      const uint32_t first = Owed().from(GroupsOf(link).cache_group, grant.cached_blocks);
      for (uint32_t block = first; block < kBlocks; ++block) {
        BATON_CHECK(landed_[block - first][link] == Content(block, link),
                    "block {} was committed with other bytes on link {}",
                    block,
                    link);
      }
    }
  }
}

}  // namespace
}  // namespace baton

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  baton::World({reinterpret_cast<const char*>(data), size}).Run();
  return 0;
}
