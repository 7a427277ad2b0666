#include "common/group/remote_leader.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "common/base/thread.h"

namespace baton {
namespace {

// The memory of this host is looked at this often for an abort that another of its ranks made.
constexpr Duration kLookEvery = std::chrono::milliseconds(20);

}  // namespace

RemoteLeader::RemoteLeader(MpiWorld& world,
                           GroupMemory& memory,
                           std::function<void(const Status& reason)> ended)
    : world_(world),
      memory_(memory),
      ended_(std::move(ended)),
      parent_(::getppid()),
      heard_(SteadyClock().Now()) {
  thread_ = StartThread("leader", [this](const std::stop_token& stop) { Run(stop); });
}

RemoteLeader::~RemoteLeader() = default;

Status RemoteLeader::Send(std::string_view text, int /*descriptor*/) {
  return world_.Post(0, MailOf(RankMail::kText, text));
}

StatusOr<RankLink::Message> RemoteLeader::Receive(Duration limit) {
  BATON_ASSIGN_OR_RETURN(std::string text, texts_.Take(limit));
  return Message{std::move(text), {}};
}

void RemoteLeader::Attach(StepRing& ring, Duration limit) {
  const std::lock_guard lock(mutex_);
  ring_ = &ring;
  step_limit_ = limit;
}

void RemoteLeader::TellEnded(uint64_t count, const RankTimes& times) {
  (void)world_.Post(0, MailOf(count, times));
}

Status RemoteLeader::SendShard(std::string_view message) {
  return world_.Post(0, MailOf(RankMail::kShard, message));
}

void RemoteLeader::ListenToShards(std::function<void(std::string_view message)> listener) {
  const std::lock_guard lock(mutex_);
  shard_listener_ = std::move(listener);
}

void RemoteLeader::Run(const std::stop_token& stop) {
  const SteadyClock clock;
  Time beat{};
  Status status;
  while (!stop.stop_requested() && status.ok() && !bye_) {
    const Time now = clock.Now();
    if (now - beat >= kBeatEvery) {
      beat = now;
      (void)world_.Post(0, MailOf(RankMail::kBeat));
      if (::getppid() != parent_) {
        status = Status(StatusCode::kUnavailable, "the process that started this rank has ended");
      } else if (now - heard_ >= kSilence) {
        status = MakeStatus(StatusCode::kUnavailable,
                            "the leader on another host has been silent for {:.1f} s",
                            ToSeconds(kSilence));
      }
    }
    if (status.ok()) status = memory_.abort_status();
    if (!status.ok()) break;
    const auto letter = world_.Take(kLookEvery, LetterPause(now - worked_));
    status = letter.status();
    if (status.ok() && letter->has_value()) status = Handle(**letter);
  }
  if (stop.stop_requested() && status.ok()) return;
  if (!status.ok()) {
    world_.Abort(world_.rank(), baton::Message(status));
    memory_.Abort(world_.rank(), baton::Message(status));
  }
  texts_.Close(status.ok() ? Status(StatusCode::kUnavailable, "the leader has ended") : status);
  ended_(status);
}

Status RemoteLeader::Handle(const MpiLetter& letter) {
  if (letter.from != 0 || letter.bytes.empty()) return OkStatus();
  heard_ = SteadyClock().Now();
  const std::string_view bytes = std::string_view(letter.bytes).substr(1);
  const auto kind = static_cast<RankMail>(letter.bytes.front());
  if (kind != RankMail::kBeat) worked_ = heard_;
  switch (kind) {
    case RankMail::kText:
      texts_.Push(std::string(bytes));
      break;
    case RankMail::kStep:
      return PublishStep(bytes);
    case RankMail::kBeat: {
      const std::lock_guard lock(mutex_);
      if (ring_ != nullptr) ring_->Beat();
      break;
    }
    case RankMail::kShard: {
      const std::lock_guard lock(mutex_);
      if (shard_listener_) shard_listener_(bytes);
      break;
    }
    case RankMail::kBye:
      bye_ = true;
      break;
    default:
      break;
  }
  return OkStatus();
}

Status RemoteLeader::PublishStep(std::string_view bytes) {
  const std::lock_guard lock(mutex_);
  if (ring_ == nullptr) {
    return MakeStatus(StatusCode::kInternal, "a step came before this rank has started");
  }
  const StepRing::Waiting waiting = {.broken = [this] { return memory_.abort_status(); }};
  BATON_ASSIGN_OR_RETURN(const std::span<std::byte> slot,
                         ring_->Prepare(bytes.size(), waiting, step_limit_));
  std::ranges::copy(std::as_bytes(std::span(bytes)), slot.begin());
  ring_->Publish();
  return OkStatus();
}

}  // namespace baton
