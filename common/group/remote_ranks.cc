#include "common/group/remote_ranks.h"

#include <utility>

#include "common/base/check.h"
#include "common/base/thread.h"

namespace baton {
namespace {

// The group's memory is looked at this often for an abort that another rank of this host made.
constexpr Duration kLookEvery = std::chrono::milliseconds(20);

}  // namespace

class RemoteRanks::Link final : public RankLink {
 public:
  Link(MpiWorld& world, int rank) : world_(world), rank_(rank) {}

  using RankLink::Send;
  Status Send(std::string_view text, int /*descriptor*/) override {
    return world_.Post(rank_, MailOf(RankMail::kText, text));
  }
  StatusOr<Message> Receive(Duration limit) override {
    BATON_ASSIGN_OR_RETURN(std::string text, texts_.Take(limit));
    return Message{std::move(text), {}};
  }
  TextQueue& texts() { return texts_; }

 private:
  MpiWorld& world_;
  const int rank_;
  TextQueue texts_;
};

struct RemoteRanks::Rank {
  Rank(MpiWorld& world, int rank, Time now) : link(world, rank), heard(now) {}
  Link link;
  Time heard;  // of the thread
};

RemoteRanks::RemoteRanks(MpiWorld& world,
                         GroupMemory& memory,
                         const std::vector<int>& ranks,
                         std::function<void(int rank, std::string_view reason)> broken)
    : world_(world), memory_(memory), ranks_(ranks), broken_(std::move(broken)) {
  const Time now = SteadyClock().Now();
  for (const int rank : ranks_) by_rank_[rank] = std::make_unique<Rank>(world, rank, now);
  thread_ = StartThread("hosts", [this](const std::stop_token& stop) { Run(stop); });
}

RemoteRanks::~RemoteRanks() {
  thread_ = {};
  for (const int rank : ranks_) (void)world_.Post(rank, MailOf(RankMail::kBye));
}

RankLink& RemoteRanks::link(int rank) {
  return by_rank_.at(rank)->link;
}

void RemoteRanks::Attach(StepRing& ring) {
  const std::lock_guard lock(mutex_);
  ring_ = &ring;
}

Status RemoteRanks::Forward(std::span<const std::byte> message) {
  const std::string_view bytes(reinterpret_cast<const char*>(message.data()), message.size());
  for (const int rank : ranks_) {
    BATON_RETURN_IF_ERROR(world_.Post(rank, MailOf(RankMail::kStep, bytes)));
  }
  return OkStatus();
}

Status RemoteRanks::SendShard(int rank, std::string_view message) {
  return world_.Post(rank, MailOf(RankMail::kShard, message));
}

void RemoteRanks::ListenToShards(std::function<void(int rank, std::string_view message)> listener) {
  const std::lock_guard lock(mutex_);
  shard_listener_ = std::move(listener);
}

void RemoteRanks::Run(const std::stop_token& stop) {
  const SteadyClock clock;
  Time beat{};
  while (!stop.stop_requested()) {
    const Time now = clock.Now();
    if (now - beat >= kBeatEvery) {
      beat = now;
      for (const int rank : ranks_) (void)world_.Post(rank, MailOf(RankMail::kBeat));
      FindSilentRanks(now);
    }
    const auto letter = world_.Take(kLookEvery, LetterPause(now - worked_));
    if (!letter.ok()) return Break(ranks_.front(), Message(letter.status()));
    if (letter->has_value()) Handle(**letter);
    // Ranks of other hosts do not see the memory of this one.
    if (const Status status = memory_.abort_status(); !status.ok()) {
      world_.Abort(0, Message(status));
      return Break(0, Message(status));
    }
  }
}

void RemoteRanks::Handle(const MpiLetter& letter) {
  const auto found = by_rank_.find(letter.from);
  if (found == by_rank_.end() || letter.bytes.empty()) return;
  Rank& rank = *found->second;
  rank.heard = SteadyClock().Now();
  const std::string_view bytes = std::string_view(letter.bytes).substr(1);
  const auto kind = static_cast<RankMail>(letter.bytes.front());
  if (kind != RankMail::kBeat) worked_ = rank.heard;
  switch (kind) {
    case RankMail::kText:
      rank.link.texts().Push(std::string(bytes));
      break;
    case RankMail::kEnded: {
      const auto ended = EndedIn(bytes);
      if (!ended.ok()) return Break(letter.from, Message(ended.status()));
      const std::lock_guard lock(mutex_);
      if (ring_ != nullptr) ring_->SetEnded(letter.from - 1, ended->count, TimesOf(*ended));
      break;
    }
    case RankMail::kShard: {
      const std::lock_guard lock(mutex_);
      if (shard_listener_) shard_listener_(letter.from, bytes);
      break;
    }
    default:
      break;
  }
}

void RemoteRanks::FindSilentRanks(Time now) {
  for (const auto& [number, rank] : by_rank_) {
    if (now - rank->heard < kSilence) continue;
    Break(number, fmt::format("on another host has been silent for {:.1f} s", ToSeconds(kSilence)));
  }
}

void RemoteRanks::Break(int rank, std::string_view reason) {
  if (std::exchange(is_broken_, true)) return;
  for (const auto& [number, one] : by_rank_) {
    one->link.texts().Close(MakeStatus(StatusCode::kUnavailable, "{}", reason));
  }
  broken_(rank, reason);
}

}  // namespace baton
