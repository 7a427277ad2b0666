#include "tests/integration/thread_ranks.h"

#include <unistd.h>

#include <utility>

#include "common/base/check.h"
#include "common/engine/decoder_executor.h"
#include "common/group/follower.h"
#include "common/model/decoder.h"
#include "kernels/cpu/cpu_backend.h"
#include "tests/fakes/rank_memory.h"

namespace baton {
namespace {

constexpr size_t kMessageBytes = size_t{1} << 20;
constexpr DecoderLimits kLimits = {.max_rows = 64, .max_logit_rows = 16};

template <class T>
T Value(StatusOr<T> result) {
  BATON_CHECK(result.ok(), "{}", Message(result.status()));
  return *std::move(result);
}

}  // namespace

class ThreadRanks::Rank {
 public:
  Rank(const ModelSpec& spec,
       const WeightSource& weights,
       const KvOptions& kv,
       std::unique_ptr<RankCollectives> collectives)
      : collectives_(std::move(collectives)) {
    const RankGroups groups = collectives_ == nullptr ? RankGroups() : collectives_->groups();
    ops_ = Value(MakeCpuOps(device_, {.groups = groups}));
    decoder_ = Value(Decoder::Load(spec, weights, *ops_, kLimits));
    executor_ = Value(DecoderExecutor::Create(*decoder_, {.kv = kv}));
  }

  Executor& executor() { return *executor_; }
  FollowerArena arena() const {
    const KvArena& own = executor_->kv_arenas().front();
    return {own.shard, std::make_unique<RankMemory>(*own.memory)};
  }

 private:
  std::unique_ptr<RankCollectives> collectives_;
  CpuDevice device_;
  std::unique_ptr<Ops> ops_;
  std::unique_ptr<Decoder> decoder_;
  std::unique_ptr<DecoderExecutor> executor_;
};

ThreadRanks::ThreadRanks(const ModelSpec& spec,
                         const WeightSource& weights,
                         const GroupShape& shape,
                         const KvOptions& kv)
    : shape_(shape), ranks_(static_cast<size_t>(shape.ranks())) {
  if (shape.ranks() == 1) {
    ranks_[0] = std::make_unique<Rank>(spec, weights, kv, nullptr);
    return;
  }
  memory_ = Value(GroupMemory::Create(shape.layout()));
  {
    // The ranks exchange when they warm up.
    std::vector<std::jthread> loading;
    for (int rank = 0; rank < shape.ranks(); ++rank) {
      loading.emplace_back([&, rank] {
        const CollectiveOptions options = {.busy_poll = Duration(0)};
        auto mine = Value(RankCollectives::Create(*memory_, shape, rank, options));
        ranks_[static_cast<size_t>(rank)] =
            std::make_unique<Rank>(spec, weights, kv, std::move(mine));
      });
    }
  }
  ring_ = Value(StepRing::Create(shape.ranks() - 1, kMessageBytes));
  std::vector<FollowerArena> arenas;
  for (int follower = 0; follower + 1 < shape.ranks(); ++follower) {
    Rank& rank = *ranks_[static_cast<size_t>(follower) + 1];
    arenas.push_back(rank.arena());
    followers_.emplace_back([this, &rank, follower](const std::stop_token& stop) {
      const auto ring = Value(StepRing::Open(UniqueFd(::dup(ring_->fd()))));
      FollowerOptions options;
      options.follower = follower;
      options.leader_limit = std::chrono::hours(1);  // no thread beats for this leader
      options.waiting = {.busy_poll = Duration(0),
                         .broken = [this] { return memory_->abort_status(); }};
      const Status status = RunFollower(rank.executor(), *ring, options, stop);
      if (!status.ok()) memory_->Abort(follower + 1, Message(status));
    });
  }
  group_ = std::make_unique<GroupExecutor>(
      ranks_[0]->executor(),
      *ring_,
      std::move(arenas),
      GroupExecutor::Options{.waiting = {.busy_poll = Duration(0),
                                         .broken = [this] { return memory_->abort_status(); }}});
}

ThreadRanks::~ThreadRanks() {
  followers_.clear();
}

Executor& ThreadRanks::executor() {
  if (group_ != nullptr) return *group_;
  return ranks_[0]->executor();
}

}  // namespace baton
