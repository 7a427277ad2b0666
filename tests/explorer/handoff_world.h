#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <initializer_list>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "common/cluster/commands.h"
#include "decode_worker/decode_handoffs.h"
#include "kvtransfer/session/receiver_session.h"
#include "kvtransfer/session/sender_session.h"
#include "kvtransfer/session/session_table.h"
#include "prefill_worker/prefill_handoffs.h"

namespace baton {

// What happens at a step instead of the expected: the oldest event is handled as it should be.
enum class Deviation : uint8_t {
  kNone,
  kDelay,         // the event comes after all others that wait now
  kLate,          // the event comes after every time-out of the present has passed
  kDrop,          // a message is lost; a stop or a fence of writes cannot be done yet
  kTwice,         // the event happens now and once more at the end of the queue
  kTwiceLate,     // the event happens now and once more after every time-out
  kTear,          // half of a write lands, the other half later
  kDamage,        // a write lands with other bytes; a step of the engine fails
  kFail,          // a write is lost and the sender is notified; a reservation finds no room
  kStall,         // a write does not end by itself
  kUnfenced,      // that a window is closed cannot be proven yet
  kTick,          // the next timer fires before the event
  kPause,         // the lease of every session runs out before the event
  kBreakStreams,  // the control stream breaks; both ends are told
  kCrashPrefill,  // the process ends and starts anew, under another boot id
  kCrashDecode,
  kCancelFirst,  // the user cancels a request
  kCancelSecond,
};
// Which deviations an exploration has: all, or those of writes, windows, processes and users only.
enum class Scope : uint8_t { kAll, kDataPath };
std::string_view Name(Deviation deviation);
// Returns nullopt for a name that no deviation has.
std::optional<Deviation> DeviationOf(std::string_view name);

// A prefill worker, a decode worker and a router with two requests. The workers run the production
// machines: SenderSession and ReceiverSession in their SessionTables, PrefillHandoffs and
// DecodeHandoffs. What surrounds the machines is modelled: threads as queues of events, the
// network, the engines, memory that is used again as soon as it is released. A world is a value: a
// copy continues on its own. Every step checks the invariants.
class HandoffWorld final {
 public:
  static constexpr uint32_t kRequests = 2;
  // A right transport keeps the contract of transport.h. With a wrong one an exploration must find
  // a violation. kMissing, kMissingForStates: bytes, or those of states alone, land after the close
  // of their window. kHastyForStates: a state is reported as arrived before it is written.
  enum class Fence : uint8_t { kRight, kMissing, kMissingForStates, kHastyForStates };
  // Which worker of each hand-off takes its blocks first. kCrossed: the prefill worker for the
  // first request and the decode worker for the second one, so that an exploration must find that
  // they wait for each other.
  enum class Order : uint8_t { kPrefillFirst, kDecodeFirst, kCrossed };

  // The cache groups of the model. kTwo: one without a window, and one that owes the last block of
  // the prompt alone. kState: one without a window, and one of states, which take one block.
  enum class Groups : uint8_t { kOne, kTwo, kState };

  // `requests` of kRequests are sent.
  explicit HandoffWorld(uint32_t requests,
                        Fence fence = Fence::kRight,
                        Order order = Order::kPrefillFirst,
                        Groups groups = Groups::kOne);

  // Nothing is left to happen.
  bool over() const { return over_; }
  // The deviations that are possible at the next step.
  std::vector<Deviation> Deviations(Scope scope) const;
  void Step(Deviation deviation);

  // The first broken invariant, or empty.
  const std::string& violation() const { return violation_; }
  uint64_t steps() const { return steps_; }
  // A hash of the events that each thread has handled, in its order. Schedules that differ only in
  // the order of independent events have the same hash.
  uint64_t trace() const;
  // A hash of the trace so far and of what is under way.
  uint64_t state() const;
  uint32_t served() const { return served_; }
  uint32_t committed() const { return committed_; }
  uint32_t redirects() const { return redirects_; }
  uint32_t quarantined() const { return quarantined_; }

 private:
  enum class Kind : uint8_t {
    // Without an order: the network and the data path.
    kToReceiver,
    kToSender,
    kWrite,
    kStopWrites,
    kFenceWrites,
    kCloseWindow,
    kDecodeLost,   // the sender is told that its stream has ended
    kPrefillLost,  // the receiver is told
    // In order, each kind by itself: the queue of a thread.
    kStart,
    kPrefillCommand,
    kDecodeCommand,
    kPrefillReport,
    kDecodeReport,
    kPrefillGone,  // the router is told that the process has ended
    kDecodeGone,
    kDial,
    kSenderCall,
    kSenderCallback,
    kReceiverCall,
    kReceiverCallback,
    kPrefillStep,
    kPrefillEvent,
    kDecodeStep,
    kDecodeEvent,
  };
  // `number` of the events of engines, reports and callbacks.
  enum Number : uint64_t {
    kCompute,
    kReserved,
    kStarted,
    kRun,
    kCancelled,
    kEnded,
    kGranted,
    kRefused,
    kFailed,
    kFinished,
    kOffered,
    kWithdrawn,
    kCommitted,
    kReleased,
    kChunk = 100,  // kChunk + i: block i of the prompt is computed
  };
  using Payload = std::variant<std::monostate,
                               ControlMessage,
                               PrefillAction,
                               DecodeAction,
                               WorkerCommand,
                               std::vector<SampledToken>>;
  struct Event {
    Kind kind{};
    uint32_t life = 0;  // of the process that handles the event; another life ignores it
    SessionKey session = {};
    RequestKey request = {};
    uint64_t number = 0;
    Status status = {};
    std::shared_ptr<const Payload> payload = {};
    uint64_t hash = 0;
  };
  struct LateEvent {
    Time due;
    Event event;
  };

  // A request in the engine of a worker.
  struct Job {
    std::shared_ptr<const Request> request;
    uint32_t computed = 0;
    std::vector<BlockId> blocks = {};  // a block table; kUnowed for a block that is not owed
    bool in_book = true;               // the worker has not reported the end
    bool end_reported = false;
    bool ended = false;   // in the engine
    bool leased = false;  // until ReleaseKv
  };
  struct Engine {
    std::map<RequestKey, Job> jobs = {};
    std::vector<BlockId> free = {};
    std::deque<RequestKey> waiting = {};  // for free blocks
  };
  struct Sending {
    Sending(const SenderSession::Params& params, const SessionTimes& times, Time now)
        : machine(params, times, now) {}
    SenderSession machine;
    WorkerId peer;
  };
  struct Receiving {
    Receiving(const Offer& offer, const OwedBlocks& owed, const SessionTimes& times, Time now)
        : machine(offer, owed, times, now) {}
    ReceiverSession machine;
    WorkerId peer;
    bool granted = false;
    std::optional<Time> ended = {};
  };
  struct Prefill {
    explicit Prefill(const PrefillHandoffs::Limits& limits) : role(limits) {}
    bool connected = false;
    bool dialling = false;
    PrefillHandoffs role;
    SessionTable<Sending> sessions;
    Engine engine;
  };
  struct Decode {
    explicit Decode(const DecodeHandoffs::Limits& limits) : role(limits) {}
    bool knows_peer = false;
    DecodeHandoffs role;
    SessionTable<Receiving> sessions;
    Engine engine;
    std::map<uint64_t, SessionKey> windows;  // the open ones
    std::map<SessionKey, Status> ends;       // how committed and released sessions ended
  };
  // A block. A value is a tag of its request, the epoch of its prefill and its index.
  struct SourceCell {
    uint64_t value = 0;
    std::optional<RequestKey> owner;
  };
  struct TargetCell {
    std::array<uint64_t, 2> halves = {};
    std::optional<RequestKey> owner;
    bool writable = false;  // from OpenWindows until the session's last report
  };
  struct Write {
    SessionKey session;
    uint64_t window_key = 0;
    uint32_t link = 0;  // one for each cache group
    uint32_t block = 0;
    BlockId source;
    BlockId target;
    uint64_t value = 0;
    bool half_landed = false;
    bool reported = false;    // too early (Fence::kHastyForStates)
    bool in_network = false;  // its sender's process has ended
  };
  struct Client {
    uint32_t epochs = 0;  // so far
    Epoch prefill_epoch;
    Epoch decode_epoch;
    uint32_t attempts = 0;
    uint32_t redirects = 0;
    bool ended = false;
  };

  void Violate(std::string_view what);
  void Emit(Event event);
  void BeginInEngine(Kind step, const RequestKey& key);
  void Requeue(Event event);
  void Handle(const Event& event, Deviation deviation);
  bool IsStale(const Event& event) const;
  void Perform(Deviation deviation);
  // Adds what the threads see to their histories.
  void Note(std::initializer_list<size_t> threads, uint64_t what);
  void Delay();
  void Advance(Time to);
  Time NextTimer() const;
  bool Idle() const;
  void CheckEnd();
  bool DecodeFirst(uint32_t request) const;
  uint32_t groups() const { return static_cast<uint32_t>(owed_.first.size()); }
  uint32_t state_blocks() const { return owed_.state ? 1 : 0; }
  // The entries of a job's blocks that are owed: one for each block of tokens and cache group. A
  // state has the entry of the last block.
  std::vector<uint32_t> OwedEntries() const;
  void CheckCircle();
  static bool IsOrdered(Kind kind) { return kind >= Kind::kStart; }
  static size_t ThreadOf(Kind kind);

  // The router.
  void StartAttempt(uint32_t request);
  void SendDispatch(uint32_t request, RequestKind kind);
  void CancelParts(uint32_t request);
  void Retry(uint32_t request);
  void Redirect(uint32_t request);
  void EndRequest(uint32_t request);
  void OnReport(const Event& event, bool prefill);
  void OnGone(bool prefill);

  // The prefill worker.
  void CrashPrefill();
  void OnPrefillCommand(const WorkerCommand& command);
  void OnPrefillStep(const Event& event, Deviation deviation);
  void OnPrefillEvent(const Event& event);
  void ActPrefill();
  void Act(const PrefillAction& action);
  void ReleaseSource(const RequestKey& key);
  void FreeSources(Job& job);
  void EndPrefill(const RequestKey& key, const Status& status);
  void OnSenderCall(const PrefillAction& action);
  void OnSenderCallback(const Event& event);
  void OnDial();
  void OfferSession(const OfferKv& action);
  void OnSenderMessage(const Event& event);
  void ActSender(const SessionKey& key);
  void Act(const SessionKey& key, Sending& session, const SenderAction& action);
  void Post(const SessionKey& key, SenderSession& machine, const PostBlocks& post);
  void LoseDecode();

  // The data path.
  void OnWrite(const Event& event, Deviation deviation);
  void Land(const Event& event, Write& write, Deviation deviation);
  void ReportArrival(const Write& write, uint64_t checksum);
  KvReservation ReservationOf(const RequestKey& key, const Job& job) const;
  void EndWrite(uint64_t id, bool done);
  void EndWritesOf(const SessionKey& session);

  // The decode worker.
  void CrashDecode();
  void OnDecodeCommand(const WorkerCommand& command);
  void OnDecodeStep(const Event& event, Deviation deviation);
  void OnDecodeEvent(const Event& event);
  void ActDecode();
  void Act(const DecodeAction& action);
  void Activate(const ActivateRequest& action);
  void ReleaseTarget(const RequestKey& key);
  void FreeTargets(Job& job);
  void EndDecode(const RequestKey& key, const Status& status);
  void OnReceiverCall(const DecodeAction& action);
  void OnReceiverCallback(const Event& event);
  void GrantSession(const GrantOffer& action);
  void OnReceiverMessage(const Event& event);
  void OnCloseWindow(const Event& event, Deviation deviation);
  void ActReceiver(const SessionKey& key);
  void Act(const SessionKey& key, Receiving& session, const ReceiverAction& action);
  void SetWritable(const ReceiverSession& machine, bool writable);
  void CheckContent(const RequestKey& key, std::span<const BlockId> blocks, uint32_t prefill_epoch);
  void LosePrefill();

  Fence fence_;
  Order order_;
  OwedBlocks owed_;
  Time now_{std::chrono::hours(1)};
  std::deque<Event> queue_;
  std::vector<LateEvent> late_;
  std::array<uint64_t, 7> histories_ = {};  // by thread
  size_t thread_ = 0;                       // that handles the present event
  uint64_t emitted_ = 0;                    // by the present event
  uint32_t prefill_life_ = 1;
  uint32_t decode_life_ = 1;
  uint32_t prefill_joined_ = 1;  // the lives that the router knows
  uint32_t decode_joined_ = 1;
  std::vector<Client> clients_;
  std::optional<Prefill> prefill_;
  std::optional<Decode> decode_;
  std::vector<SourceCell> source_;
  std::vector<TargetCell> target_;
  std::map<uint64_t, Write> writes_;
  uint64_t stream_ = 0;  // the number of dials so far
  uint64_t next_write_ = 1;
  uint64_t next_key_ = 1;
  std::string violation_;
  bool over_ = false;
  uint64_t steps_ = 0;
  uint32_t served_ = 0;
  uint32_t committed_ = 0;
  uint32_t redirects_ = 0;
  uint32_t quarantined_ = 0;
};

}  // namespace baton
