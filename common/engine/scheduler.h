#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include <absl/container/flat_hash_map.h>

#include "common/base/clock.h"
#include "common/base/hash.h"
#include "common/engine/options.h"
#include "common/engine/ordering.h"
#include "common/engine/outcomes.h"
#include "common/engine/request_check.h"
#include "common/engine/sequence.h"
#include "common/engine/step_plan.h"
#include "common/engine/step_time.h"
#include "common/kvcache/kv_cache.h"

namespace baton {

// Decides what each step computes, and keeps the books of requests and their blocks. Pure: no I/O,
// threads or clock; time comes in as a value, results go out as Outcomes. Belongs to one thread.
//
// A plan with rows is *under way* until its Commit or Abort. What ends meanwhile keeps its blocks
// until then, since the device may still write them.
class Scheduler final {
 public:
  struct Options {
    EngineOptions engine;
    RequestLimits limits;
    Hash128 model_fingerprint;
  };

  // `cache` outlives the scheduler.
  Scheduler(const Options& options, KvCache& cache);

  // The methods of Engine (engine.h), with their contracts.
  void Add(Request request, Time now);
  void Activate(RequestKey key, std::vector<SampledToken> first_tokens, Time now);
  void Cancel(RequestKey key);
  void StopSample(RequestKey key, int32_t sample);
  void ReleaseKv(RequestKey key);
  // Ends every request with `status`.
  void FailAll(const Status& status);

  // Chooses the next step, while none is under way; requests whose deadline has passed end before.
  // The plan stays valid until Commit or Abort, one of which must follow when it has rows.
  const StepPlan& Plan(Time now);
  // Chooses the step behind the one that alone is under way, as far as its tokens need not be
  // known: when both only decode, nothing waits that would fit, and no block is scarce. A row of it
  // whose sequence turns out to have ended is computed for nothing. Null: plan after Commit.
  const StepPlan* PlanAhead(Time now);
  // The oldest plan under way ran: `sampled` are its logit_rows tokens, in the order of its rows.
  // StoreBlocks must follow before anything but TakeOutcomes.
  void Commit(std::span<SampledToken> sampled, Time now);
  // Puts the blocks that sequences which go on have filled into the prefix cache: after a hand-off
  // many, so that tokens are better delivered first.
  void StoreBlocks();
  // It failed: its requests, and those of the plan behind it, end with `status`, all others go on.
  // The hand-offs keep the plan's chunks only if they were told of any (`chunks_told`).
  void Abort(const Status& status, bool chunks_told);

  // What happened since the last call.
  Outcomes TakeOutcomes() { return std::exchange(outcomes_, {}); }

  bool idle() const { return active_.empty(); }
  // Running sequences, best ranked first.
  std::span<const Sequence* const> running() const { return running_; }
  SchedulerCounts Counts() const;
  // Blocks in use that no sequence and no hand-off accounts for.
  int32_t LeakedBlocks() const;
  // How long steps take, for EngineOptions::itl_target and the deadline policy.
  void set_step_time(const StepTimeModel& step_time);
  // As Engine::CheckIntegrity.
  Status CheckIntegrity() const;

 private:
  // What ended while a plan was under way: the plan's rows point to it, and its blocks may be
  // written.
  struct Remains {
    std::vector<std::unique_ptr<ActiveRequest>> requests;
    std::vector<Lease> leases;

    void Clear() {
      requests.clear();
      leases.clear();
    }
  };

  struct ByRank {
    bool operator()(const Sequence* a, const Sequence* b) const { return a->rank < b->rank; }
  };

  // scheduler.cc: requests come and go.
  Status CheckRoom(const ActiveRequest& active) const;
  void Refuse(const RequestKey& key, const Status& status);
  void Fail(ActiveRequest& active, const Status& status);
  void FailWithoutToken(ActiveRequest& active);
  void Finish(Sequence& sequence);
  void Drop(Sequence& sequence);
  void Reap();
  void Enqueue(Sequence& sequence);
  void Dequeue(Sequence& sequence);
  void Run(Sequence& sequence);
  void EndExpired(Time now);
  Status NoBlocksFor(const ActiveRequest& active) const;
  int32_t OwnWorstBlocks(const ActiveRequest& active) const;
  int32_t WorstBlocks(const ActiveRequest& active) const;
  int32_t LeastBlocks(const ActiveRequest& active) const;
  int64_t MostTokens() const;
  bool never_evicts() const {
    return options_.engine.admission == AdmissionPolicy::kGuaranteedNoEvict;
  }

  // scheduler_plan.cc: what the next step computes.
  bool CanPlanAhead();
  void Foresee();
  void PlanDecodes();
  void PlanPrompts();
  int32_t PromptBudget(int32_t context) const;
  int32_t ChunkOf(const Sequence& sequence, int32_t budget) const;
  void AddRow(Sequence& sequence, int32_t count);
  bool MakeRoom(Sequence& sequence, int32_t count);
  void Preempt(Sequence& sequence);
  void AdmitWaiting(Time now);
  void AdmitReservations(Time now);
  void AdmitAnnounced(Time now);
  bool Admit(Sequence& sequence, const PrefixHit& hit, Time now);
  int32_t SetAside() const;
  bool Blocked(const Sequence& sequence);
  bool FitsNow(const Sequence& sequence, const PrefixHit& hit);
  bool ComputedByOther(const Sequence& sequence, const PrefixHit& hit) const;
  PrefixHit FindPrefix(const Sequence& sequence) const;
  void StartReserved(Sequence& sequence, const PrefixHit& hit);
  void RefuseExcessReservations();
  void LeaseChunks();

  // scheduler_commit.cc: what a step brought.
  void StoreFullBlocks(Sequence& sequence);
  std::optional<Outcomes::Chunk> LeaseChunk(const Sequence& sequence, int32_t computed, bool last);
  void TakeFirstTokens(ActiveRequest& active, std::span<SampledToken> tokens, bool emit);
  void Fork(ActiveRequest& active);
  FinishReason Judge(const ActiveRequest& active, TokenId token, int32_t length) const;
  void TakeToken(Sequence& sequence, int32_t index, SampledToken&& token, bool emit);
  void Emit(const ActiveRequest& active,
            int32_t sample,
            int32_t length,
            SampledToken&& token,
            FinishReason finish);

  // scheduler_check.cc: proof that the books agree.
  std::vector<const Lease*> AllLeases() const;
  Status CheckSequence(const Sequence& sequence) const;
  Status CheckQueues() const;

  const Options options_;
  const int32_t slot_limit_;
  const Ordering ordering_;
  KvCache& cache_;
  Duration token_time_ = std::chrono::microseconds(100);  // predicted, of one computed token
  StepTimeModel step_time_;

  absl::flat_hash_map<RequestKey, std::unique_ptr<ActiveRequest>> active_;
  std::vector<RequestKey> ended_;  // to be removed from active_ by Reap
  // Keep the blocks of hand-offs until ReleaseKv, whatever becomes of the request.
  absl::flat_hash_map<RequestKey, Lease> handoffs_;
  std::set<Sequence*, ByRank> waiting_;
  std::vector<Sequence*> running_;  // by rank
  std::vector<Sequence*> awaiting_kv_;
  int32_t waiting_reservations_ = 0;
  std::vector<Sequence*> store_later_;  // between Commit and StoreBlocks
  int64_t waiting_tokens_ = 0;
  int32_t slots_ = 0;     // of slot_limit_, in use by running and awaiting sequences
  int32_t promised_ = 0;  // blocks that admitted sequences may still take (kGuaranteedNoEvict)
  uint64_t last_serial_ = 0;
  Time next_expiry_ = kNever;  // no request expires earlier

  StepPlan plan_;           // the last
  StepPlan before_;         // the one that it is behind, when `two_under_way_`
  Remains remains_;         // while plan_ was the last under way
  Remains remains_before_;  // while before_ was
  bool under_way_ = false;  // plan_ is
  bool two_under_way_ = false;
  size_t decode_rows_ = 0;          // the plan's first rows, which are not prompts
  std::vector<Hash128> computing_;  // the blocks that prompts in progress compute next
  // The head of the queue did not fit: it is not matched again before so many blocks are available
  // or some plans have passed, since matching a long prompt takes time.
  const Sequence* blocked_ = nullptr;
  int32_t blocked_need_ = 0;
  int32_t blocked_plans_ = 0;

  Outcomes outcomes_;
  SchedulerCounts totals_;
};

}  // namespace baton
