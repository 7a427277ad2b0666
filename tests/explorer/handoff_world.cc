#include "tests/explorer/handoff_world.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "tests/explorer/world_constants.h"

namespace baton {
namespace {

constexpr std::array<std::string_view, 18> kNames = {"none",
                                                     "delay",
                                                     "late",
                                                     "drop",
                                                     "twice",
                                                     "twice-late",
                                                     "tear",
                                                     "damage",
                                                     "fail",
                                                     "stall",
                                                     "unfenced",
                                                     "tick",
                                                     "pause",
                                                     "break-streams",
                                                     "crash-prefill",
                                                     "crash-decode",
                                                     "cancel-first",
                                                     "cancel-second"};

// By then every request must have ended, whatever the deviations.
constexpr Duration kEndOfTheWorld = std::chrono::seconds(30);
constexpr Time kStart{std::chrono::hours(1)};

uint64_t Mix(uint64_t a, uint64_t b) {
  uint64_t x = (a ^ (b + 0x9e3779b97f4a7c15)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 29)) * 0x94d049bb133111eb;
  return x ^ (x >> 32);
}

}  // namespace

std::string_view Name(Deviation deviation) {
  return kNames.at(static_cast<size_t>(deviation));
}

std::optional<Deviation> DeviationOf(std::string_view name) {
  const auto found = std::ranges::find(kNames, name);
  if (found == kNames.end()) return std::nullopt;
  return static_cast<Deviation>(found - kNames.begin());
}

HandoffWorld::HandoffWorld(uint32_t requests, Fence fence, Order order, Groups groups)
    : fence_(fence), order_(order), owed_{.count = kBlocks, .first = {0}}, clients_(requests) {
  if (groups != Groups::kOne) owed_.first.push_back(kBlocks - 1);
  owed_.state = groups == Groups::kState;
  source_.resize(OwedEntries().size() + kMoreBlocks);
  target_.resize(source_.size());
  CrashPrefill();
  CrashDecode();
  prefill_life_ = prefill_joined_ = 1;
  decode_life_ = decode_joined_ = 1;
  queue_.clear();
  for (uint32_t request = 0; request < requests; ++request) {
    Emit({.kind = Kind::kStart, .number = request});
  }
}

std::vector<uint32_t> HandoffWorld::OwedEntries() const {
  std::vector<uint32_t> entries;
  for (uint32_t entry = 0; entry < owed_.count * groups(); ++entry) {
    if (entry / groups() >= owed_.first[entry % groups()]) entries.push_back(entry);
  }
  return entries;
}

void HandoffWorld::Violate(std::string_view what) {
  if (violation_.empty()) {
    violation_ = fmt::format("{} at step {}, {} ms", what, steps_, ToMillis(now_ - kStart));
  }
}

uint64_t HandoffWorld::trace() const {
  uint64_t hash = 0;
  for (const uint64_t history : histories_) hash = Mix(hash, history);
  return hash;
}

uint64_t HandoffWorld::state() const {
  uint64_t hash = trace();
  for (const Event& event : queue_) hash = Mix(hash, event.hash);
  for (const LateEvent& late : late_) hash = Mix(hash, late.event.hash + 1);
  return hash;
}

// An event is the n-th effect of what its thread has handled so far.
void HandoffWorld::Emit(Event event) {
  event.hash = Mix(histories_[thread_], Mix(static_cast<uint64_t>(event.kind), ++emitted_));
  queue_.push_back(std::move(event));
}

void HandoffWorld::Requeue(Event event) {
  event.hash = Mix(event.hash, 1);
  queue_.push_back(std::move(event));
}

// ---- steps

std::vector<Deviation> HandoffWorld::Deviations(Scope scope) const {
  std::vector<Deviation> possible;
  if (over_ || (queue_.empty() && Idle())) return possible;
  possible = {Deviation::kCrashPrefill, Deviation::kCrashDecode};
  if (!clients_[0].ended) possible.push_back(Deviation::kCancelFirst);
  if (clients_.size() > 1 && !clients_[1].ended) possible.push_back(Deviation::kCancelSecond);
  if (queue_.empty()) return possible;  // time passes now
  possible.push_back(Deviation::kPause);
  const Kind kind = queue_.front().kind;
  if (scope == Scope::kDataPath && (kind < Kind::kWrite || kind > Kind::kCloseWindow)) {
    return possible;
  }
  const auto add = [&](std::initializer_list<Deviation> more) {
    possible.insert(possible.end(), more);
  };
  add({Deviation::kTick, Deviation::kBreakStreams});
  if (queue_.size() > 1) add({Deviation::kDelay});
  switch (kind) {
    case Kind::kToReceiver:
    case Kind::kToSender:
      add({Deviation::kLate, Deviation::kDrop, Deviation::kTwice, Deviation::kTwiceLate});
      break;
    case Kind::kWrite:
      add({Deviation::kLate,
           Deviation::kTwice,
           Deviation::kTwiceLate,
           Deviation::kTear,
           Deviation::kDamage,
           Deviation::kFail,
           Deviation::kStall});
      break;
    case Kind::kStopWrites:
      add({Deviation::kDrop});
      break;
    case Kind::kFenceWrites:
      add({Deviation::kLate});
      break;
    case Kind::kCloseWindow:
      add({Deviation::kLate, Deviation::kUnfenced});
      break;
    case Kind::kDecodeLost:
    case Kind::kPrefillLost:
      add({Deviation::kLate});
      break;
    case Kind::kPrefillStep:
      if (queue_.front().number == kCompute) add({Deviation::kDamage});
      break;
    case Kind::kDecodeStep:
      if (queue_.front().number == kCompute) add({Deviation::kFail});
      break;
    default:
      break;
  }
  return possible;
}

void HandoffWorld::Step(Deviation deviation) {
  ++steps_;
  if (deviation == Deviation::kDelay) {
    Delay();
  } else if (deviation >= Deviation::kTick) {
    Perform(deviation);  // something happens beside the oldest event
  } else if (!queue_.empty()) {
    const Event event = std::move(queue_.front());
    queue_.pop_front();
    if (deviation == Deviation::kLate || deviation == Deviation::kTwiceLate ||
        deviation == Deviation::kUnfenced) {
      late_.push_back({now_ + kLateBy, event});
    }
    if (deviation == Deviation::kTwice) Requeue(event);
    if (deviation == Deviation::kStall || deviation == Deviation::kLate) return;
    if (deviation == Deviation::kDrop) return;
    if (!IsStale(event)) Handle(event, deviation);
  } else if (Idle()) {
    over_ = true;
    CheckEnd();
  } else {
    Advance(NextTimer());
  }
  CheckCircle();
  if (now_ > kStart + kEndOfTheWorld) Violate("a request, session or block never came to its end");
  if (!violation_.empty()) over_ = true;
}

// The engine of a worker begins a request as soon as blocks are free. `step`: kPrefillStep or
// kDecodeStep.
void HandoffWorld::BeginInEngine(Kind step, const RequestKey& key) {
  const uint32_t life = step == Kind::kPrefillStep ? prefill_life_ : decode_life_;
  Emit({.kind = step, .life = life, .request = key, .number = kCompute});
}

bool HandoffWorld::DecodeFirst(uint32_t request) const {
  return order_ == Order::kDecodeFirst || (order_ == Order::kCrossed && request == 1);
}

// No two requests hold blocks that the other one waits for.
void HandoffWorld::CheckCircle() {
  const auto waits = [](const Engine& engine, const RequestKey& key) {
    const auto job = engine.jobs.find(key);
    return job != engine.jobs.end() && !job->second.ended &&
           std::ranges::find(engine.waiting, key) != engine.waiting.end();
  };
  const auto holds = [](const Engine& engine, const RequestKey& key) {
    const auto job = engine.jobs.find(key);
    return job != engine.jobs.end() &&
           (job->second.leased || (!job->second.ended && !job->second.blocks.empty()));
  };
  bool at_prefill = false;  // a request holds target blocks and waits for source blocks
  bool at_decode = false;   // the other way round
  for (uint32_t request = 0; request < clients_.size(); ++request) {
    const Client& client = clients_[request];
    const RequestKey source(RequestId(request + 1), client.prefill_epoch);
    const RequestKey target(RequestId(request + 1), client.decode_epoch);
    at_prefill |= waits(prefill_->engine, source) && holds(decode_->engine, target);
    at_decode |= holds(prefill_->engine, source) && waits(decode_->engine, target);
  }
  if (at_prefill && at_decode) Violate("two requests wait for each other's blocks");
}

// Puts the oldest event behind all others. Events of the same ordered queue stay behind it.
void HandoffWorld::Delay() {
  const Kind kind = queue_.front().kind;
  if (!IsOrdered(kind)) {
    queue_.push_back(std::move(queue_.front()));
    queue_.pop_front();
    return;
  }
  std::stable_partition(
      queue_.begin(), queue_.end(), [&](const Event& event) { return event.kind != kind; });
}

bool HandoffWorld::IsStale(const Event& event) const {
  switch (event.kind) {
    case Kind::kToReceiver:
    case Kind::kToSender:
    case Kind::kWrite:
    case Kind::kStart:
    case Kind::kPrefillGone:
    case Kind::kDecodeGone:
      return false;
    case Kind::kPrefillReport:
      return event.life != prefill_joined_;
    case Kind::kDecodeReport:
      return event.life != decode_joined_;
    case Kind::kCloseWindow:
    case Kind::kPrefillLost:
    case Kind::kDecodeCommand:
    case Kind::kReceiverCall:
    case Kind::kReceiverCallback:
    case Kind::kDecodeStep:
    case Kind::kDecodeEvent:
      return event.life != decode_life_;
    default:
      return event.life != prefill_life_;
  }
}

size_t HandoffWorld::ThreadOf(Kind kind) {
  switch (kind) {
    case Kind::kToReceiver:
    case Kind::kWrite:
    case Kind::kCloseWindow:
    case Kind::kPrefillLost:
    case Kind::kReceiverCall:
      return kReceiverThread;
    case Kind::kToSender:
    case Kind::kStopWrites:
    case Kind::kFenceWrites:
    case Kind::kDecodeLost:
    case Kind::kSenderCall:
    case Kind::kDial:
      return kSenderThread;
    case Kind::kPrefillCommand:
    case Kind::kPrefillEvent:
    case Kind::kSenderCallback:
      return kPrefillThread;
    case Kind::kDecodeCommand:
    case Kind::kDecodeEvent:
    case Kind::kReceiverCallback:
      return kDecodeThread;
    case Kind::kPrefillStep:
    case Kind::kDecodeStep:
      return kEngines;
    default:
      return kRouterThread;
  }
}

void HandoffWorld::Handle(const Event& event, Deviation deviation) {
  thread_ = ThreadOf(event.kind);
  emitted_ = 0;
  const uint64_t handled = Mix(event.hash, static_cast<uint64_t>(deviation) + 1);
  Note({thread_}, handled);
  // The other end sees these too.
  if (event.kind == Kind::kWrite) Note({kSenderThread}, handled);
  if (event.kind == Kind::kDial) Note({kReceiverThread, kPrefillThread}, handled);
  switch (event.kind) {
    case Kind::kToReceiver:
      return OnReceiverMessage(event);
    case Kind::kToSender:
      return OnSenderMessage(event);
    case Kind::kWrite:
      return OnWrite(event, deviation);
    case Kind::kStopWrites:
    case Kind::kFenceWrites:
      return EndWritesOf(event.session);
    case Kind::kCloseWindow:
      return OnCloseWindow(event, deviation);
    case Kind::kDecodeLost:
      if (event.number == stream_) LoseDecode();
      return;
    case Kind::kPrefillLost:
      if (event.number == stream_) LosePrefill();
      return;
    case Kind::kStart:
      return StartAttempt(static_cast<uint32_t>(event.number));
    case Kind::kPrefillCommand:
      return OnPrefillCommand(std::get<WorkerCommand>(*event.payload));
    case Kind::kDecodeCommand:
      return OnDecodeCommand(std::get<WorkerCommand>(*event.payload));
    case Kind::kPrefillReport:
      return OnReport(event, /*prefill=*/true);
    case Kind::kDecodeReport:
      return OnReport(event, /*prefill=*/false);
    case Kind::kPrefillGone:
      return OnGone(/*prefill=*/true);
    case Kind::kDecodeGone:
      return OnGone(/*prefill=*/false);
    case Kind::kDial:
      return OnDial();
    case Kind::kSenderCall:
      return OnSenderCall(std::get<PrefillAction>(*event.payload));
    case Kind::kSenderCallback:
      return OnSenderCallback(event);
    case Kind::kReceiverCall:
      return OnReceiverCall(std::get<DecodeAction>(*event.payload));
    case Kind::kReceiverCallback:
      return OnReceiverCallback(event);
    case Kind::kPrefillStep:
      return OnPrefillStep(event, deviation);
    case Kind::kPrefillEvent:
      return OnPrefillEvent(event);
    case Kind::kDecodeStep:
      return OnDecodeStep(event, deviation);
    case Kind::kDecodeEvent:
      return OnDecodeEvent(event);
  }
}

void HandoffWorld::Note(std::initializer_list<size_t> threads, uint64_t what) {
  for (const size_t thread : threads) histories_[thread] = Mix(histories_[thread], what);
}

void HandoffWorld::Perform(Deviation deviation) {
  thread_ = deviation >= Deviation::kCancelFirst ? kRouterThread : kOutside;
  emitted_ = 0;
  Note({thread_}, static_cast<uint64_t>(deviation));
  switch (deviation) {
    case Deviation::kTick:
      return Advance(NextTimer());
    case Deviation::kPause:
      return Advance(now_ + kTimes.lease + std::chrono::milliseconds(1));
    case Deviation::kBreakStreams:
      Emit({.kind = Kind::kDecodeLost, .life = prefill_life_, .number = stream_});
      Emit({.kind = Kind::kPrefillLost, .life = decode_life_, .number = stream_});
      return;
    case Deviation::kCrashPrefill:
      Note({kSenderThread, kPrefillThread, kEngines}, prefill_life_);
      CrashPrefill();
      Emit({.kind = Kind::kPrefillLost, .life = decode_life_, .number = stream_});
      Emit({.kind = Kind::kPrefillGone});
      return;
    case Deviation::kCrashDecode:
      Note({kReceiverThread, kDecodeThread, kEngines}, decode_life_);
      CrashDecode();
      Emit({.kind = Kind::kDecodeLost, .life = prefill_life_, .number = stream_});
      Emit({.kind = Kind::kDecodeGone});
      return;
    case Deviation::kCancelFirst:
      return EndRequest(0);
    default:
      return EndRequest(1);
  }
}

// ---- time

Time HandoffWorld::NextTimer() const {
  Time next = now_ + kRoleTick;
  for (const auto& [key, session] : prefill_->sessions) {
    next = std::min(next, session.machine.wake_time());
  }
  for (const auto& [key, session] : decode_->sessions) {
    next = std::min(next, session.machine.wake_time());
  }
  for (const LateEvent& late : late_) next = std::min(next, late.due);
  return std::max(next, now_);
}

void HandoffWorld::Advance(Time to) {
  now_ = to;
  emitted_ = 0;
  const auto time = static_cast<uint64_t>(now_.time_since_epoch().count());
  Note({kSenderThread, kReceiverThread, kPrefillThread, kDecodeThread}, time);
  thread_ = kSenderThread;
  for (const SessionKey& key : prefill_->sessions.Due(now_)) {
    prefill_->sessions.Find(key)->machine.OnTime(now_);
    ActSender(key);
  }
  thread_ = kReceiverThread;
  for (const SessionKey& key : decode_->sessions.Due(now_)) {
    decode_->sessions.Find(key)->machine.OnTime(now_);
    ActReceiver(key);
  }
  // An ended session answers late messages for a while; then it is forgotten.
  std::vector<SessionKey> old;
  for (const auto& [key, session] : decode_->sessions) {
    if (session.ended.has_value() && now_ - *session.ended > kLinger) old.push_back(key);
  }
  for (const SessionKey& key : old) decode_->sessions.Erase(key);
  prefill_->role.OnTime(now_);
  ActPrefill();
  decode_->role.OnTime(now_);
  ActDecode();
  for (LateEvent& late : late_) {
    if (late.due <= now_) queue_.push_back(std::move(late.event));
  }
  std::erase_if(late_, [this](const LateEvent& late) { return late.due <= now_; });
}

bool HandoffWorld::Idle() const {
  if (!late_.empty() || prefill_->role.size() > 0 || decode_->role.size() > 0) return false;
  return prefill_->sessions.empty() &&
         std::ranges::all_of(decode_->sessions,
                             [](const auto& entry) { return entry.second.machine.ended(); });
}

void HandoffWorld::CheckEnd() {
  for (const Client& client : clients_) {
    if (!client.ended) Violate("a request never ended");
  }
  std::erase_if(writes_, [](const auto& entry) { return entry.second.in_network; });
  if (!writes_.empty()) Violate("a write never ended");
  if (!decode_->windows.empty()) Violate("a window is left open");
  if (prefill_->engine.free.size() != source_.size()) Violate("the prefill worker leaks blocks");
  if (decode_->engine.free.size() != target_.size()) Violate("the decode worker leaks blocks");
}

}  // namespace baton
