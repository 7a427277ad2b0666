#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include <absl/container/flat_hash_map.h>

#include "common/base/clock.h"
#include "common/base/hash.h"
#include "common/engine/kv_room.h"
#include "common/engine/options.h"
#include "common/engine/ordering.h"
#include "common/engine/outcomes.h"
#include "common/engine/request_check.h"
#include "common/engine/sequence.h"
#include "common/engine/step_queue.h"
#include "common/engine/step_time.h"
#include "common/kvcache/kv_cache.h"

namespace baton {

// Decides what each step computes, and tracks requests and their blocks. Pure: no I/O, threads or
// clock; time is an argument, results are returned as Outcomes. Belongs to one thread.
//
// A plan with rows is *under way* until its Commit or Abort. A sequence that ends meanwhile keeps
// its blocks until then, because the device may still write them. On a pipeline of several stages,
// as many plans are under way as there are stages. A sequence is in one of them at most, except
// that consecutive plans may compute consecutive chunks of a prompt.
class Scheduler final {
 public:
  struct Options {
    EngineOptions engine;
    RequestLimits limits;
    Hash128 model_fingerprint;
    int32_t stages = 1;          // Executor::stages, at most StepQueue::kMaxSteps
    bool samples_later = false;  // Executor::samples_later
  };

  // `cache` outlives the scheduler.
  Scheduler(const Options& options, KvCache& cache);

  // The same contracts as the methods of Engine (engine.h); Add is Submit, with the compiled
  // grammar and the first mask of a constrained request.
  void Add(Request request, Time now, Constraint constraint = {});
  // Whether the request has been added and has not ended.
  bool Knows(const RequestKey& key) const { return active_.contains(key); }
  void PeerReady(RequestKey key, Time now);
  void Activate(RequestKey key, std::vector<SampledToken> first_tokens, Time now);
  void Cancel(RequestKey key);
  void StopSample(RequestKey key, int32_t sample);
  void ReleaseKv(RequestKey key);
  // Ends every request with `status`.
  void FailAll(const Status& status);

  // First ends requests whose deadline has passed, then plans the next step. Fewer plans than
  // stages may be under way (can_plan). The plan stays valid until Commit or Abort. One of the two
  // must follow when it has rows. A plan without rows while others are under way: the next Commit
  // may change that.
  const StepPlan& Plan(Time now);
  bool can_plan() const { return std::cmp_less(steps_.size(), options_.stages); }
  // One stage only. Plans the step after the only one under way, before its tokens are known.
  // Possible when both steps only decode, no waiting sequence would fit, and enough blocks are
  // available; null otherwise: the caller plans after Commit. A row whose sequence ends with the
  // earlier step is computed in vain.
  const StepPlan* PlanAhead(Time now);
  // Takes the results of the oldest plan under way: `sampled` are its logit_rows tokens, in the
  // order of its rows. StoreBlocks must follow before any call except TakeOutcomes.
  void Commit(std::span<SampledToken> sampled, Time now);
  // Enters the full blocks of sequences that continue into the prefix cache, and releases blocks
  // that no later token reads. Separate from Commit, because a hand-off has many blocks and the
  // tokens are to be delivered first.
  void StoreBlocks();
  // The oldest plan under way failed: its requests, and those of the plans after it, end with
  // `status`; all others continue. The hand-offs keep a plan's chunks only if the listener received
  // any of them (QueuedStep::layers_told).
  void Abort(const Status& status);

  // The steps under way. The engine keeps its part of each step here.
  StepQueue& steps() { return steps_; }
  // The results since the last call.
  Outcomes TakeOutcomes() { return std::exchange(outcomes_, {}); }

  bool idle() const { return active_.empty(); }
  // Running sequences, best ranked first.
  std::span<const Sequence* const> running() const { return running_; }
  SchedulerCounts Counts() const;
  // Blocks in use that belong to no sequence, no hand-off and no step under way.
  int32_t LeakedBlocks() const;
  // Sets the model of step times, which EngineOptions::itl_target and the deadline policy use.
  void set_step_time(const StepTimeModel& step_time);
  // See Engine::CheckIntegrity.
  Status CheckIntegrity() const;

 private:
  // What one step may take, so that the steps under way are about equal.
  struct StepShare {
    int32_t tokens = std::numeric_limits<int32_t>::max();
    int32_t decodes = std::numeric_limits<int32_t>::max();
    int32_t prompt_tokens = std::numeric_limits<int32_t>::max();
  };
  struct ByRank {
    bool operator()(const Sequence* a, const Sequence* b) const { return a->rank < b->rank; }
  };

  // scheduler.cc: the start and the end of requests.
  Status CheckRoom(const ActiveRequest& active) const;
  void Refuse(const RequestKey& key, const Status& status);
  void Fail(ActiveRequest& active, const Status& status);
  void FailWithoutToken(const Sequence& sequence, int32_t length);
  void FailAndForget(ActiveRequest& active, const Status& status);
  void Finish(Sequence& sequence);
  void Drop(Sequence& sequence);
  void Reap();
  void Enqueue(Sequence& sequence);
  void Dequeue(Sequence& sequence);
  void CountHeld(const ActiveRequest& active, int32_t requests);
  void EndHold(ActiveRequest& active);
  void BoundWait(ActiveRequest& active, Time now) const;
  void Run(Sequence& sequence);
  void ForgetChunks(const RequestKey& key);
  void EndExpired(Time now);
  Status NoBlocksFor(const ActiveRequest& active) const;
  bool never_evicts() const {
    return options_.engine.admission == AdmissionPolicy::kGuaranteedNoEvict;
  }

  // scheduler_room.cc: how many blocks a request needs.
  int32_t OwnWorstBlocks(const ActiveRequest& active) const;
  int32_t MaxBlocks(const ActiveRequest& active) const;
  int32_t MinBlocks(const ActiveRequest& active) const;
  int32_t SharedBlocks(int32_t length) const;
  int32_t BlocksToPromise(const Sequence& sequence) const;
  bool slides() const { return room_.slides(); }
  bool slides(const Sequence& sequence) const;
  int32_t HandoffBlocks() const;
  void ReleaseSlidBlocks(Sequence& sequence);

  // scheduler_plan.cc: the choice of the next step.
  bool CanPlanAhead();
  void AppendPlaceholders();
  void PlanDecodes();
  bool MakeRoomOrPreempt(size_t rank);
  int32_t SlidingRoom(const Sequence& sequence) const;
  void PlanPrompts();
  StepShare ShareOfStep() const;
  int32_t PromptBudget(int32_t context) const;
  int32_t ChunkOf(const Sequence& sequence, int32_t budget) const;
  int32_t ScoredChunk(const Sequence& sequence) const;
  void AddRow(Sequence& sequence, int32_t count, RowKind kind);
  bool Grow(Sequence& sequence, int32_t blocks);
  bool MakeRoom(Sequence& sequence, int32_t count);
  void PreemptFrom(size_t rank);
  void LeaseChunks();

  // scheduler_admit.cc: the admission of waiting sequences.
  void AdmitWaiting(Time now);
  void AdmitReservations(Time now);
  bool Admit(Sequence& sequence, const PrefixHit& hit, Time now);
  int32_t FirstHeld(const Sequence& sequence, int32_t group) const;
  std::vector<int32_t> FirstSizes(const Sequence& sequence, int32_t hits) const;
  int32_t Spare() const;
  bool Blocked(const Sequence& sequence);
  bool FitsNow(const Sequence& sequence, const PrefixHit& hit);
  bool ComputedByOther(const Sequence& sequence, const PrefixHit& hit) const;
  PrefixHit FindPrefix(const Sequence& sequence) const;
  void StartReserved(Sequence& sequence, const PrefixHit& hit);
  void RefuseExcessReservations();

  // scheduler_state.cc: the states of sequences.
  bool has_states() const { return cache_.state_blocks() > 0; }
  bool TakeStates(Sequence& sequence, const PrefixHit& hit);
  int32_t NewStateBlocks(const Sequence& sequence, const PrefixHit& hit) const;
  bool MakeStateRoom(Sequence& sequence);
  bool IsStateAtBorder(const Sequence& sequence) const;
  bool IsCheckpointDue(const Sequence& sequence) const;
  void StoreState(const Sequence& sequence);
  int32_t LastBorder(const Sequence& sequence) const;
  int32_t CheckpointChunk(const Sequence& sequence) const;

  // scheduler_verify.cc: tokens that are guessed.
  void SetDraftBudget();
  std::vector<TokenId> FindDrafts(Sequence& sequence, int32_t most) const;
  int32_t AppendDrafts(Sequence& sequence);
  int32_t TokensInBlocks(const Sequence& sequence) const;
  void TakeVerified(Sequence& sequence, const PlanRow& row, std::span<SampledToken> tokens);
  void Rewind(Sequence& sequence, const PlanRow& row, Lease* read_state);

  // scheduler_commit.cc: the results of a step.
  void StoreFullBlocks(Sequence& sequence);
  void CommitPooled(Sequence& sequence,
                    const PlanRow& row,
                    std::span<const float> states,
                    Time now);
  std::optional<Outcomes::Chunk> LeaseChunk(const Sequence& sequence, int32_t computed, bool last);
  void TakeFirstTokens(ActiveRequest& active, std::span<SampledToken> tokens, bool emit);
  void Fork(ActiveRequest& active);
  FinishReason FinishReasonOf(const ActiveRequest& active, TokenId token, int32_t length) const;
  void TakeToken(Sequence& sequence, int32_t index, SampledToken&& token, bool emit);
  void Emit(ActiveRequest& active,
            int32_t sample,
            int32_t length,
            SampledToken&& token,
            FinishReason finish);

  // scheduler_check.cc: consistency checks.
  // Calls `visit` with each lease that is not the block table of a sequence.
  template <class Visit>
  void VisitOtherLeases(const Visit& visit) const;
  std::vector<const Lease*> AllLeases() const;
  Status CheckSequence(const Sequence& sequence) const;
  Status CheckQueues() const;
  Status CheckSteps() const;

  const Options options_;
  const int32_t slot_limit_;
  const Ordering ordering_;
  KvCache& cache_;
  const KvRoom room_;
  const int32_t checkpoint_tokens_;  // of EngineOptions::state_checkpoint_tokens
  Duration token_time_ = std::chrono::microseconds(100);  // predicted time of one computed token
  StepTimeModel step_time_;

  absl::flat_hash_map<RequestKey, std::unique_ptr<ActiveRequest>> active_;
  std::vector<RequestKey> ended_;  // Reap removes these from active_
  // Leases that keep the blocks of hand-offs until ReleaseKv, even when the request has ended.
  absl::flat_hash_map<RequestKey, Lease> handoffs_;
  std::set<Sequence*, ByRank> waiting_;
  std::vector<Sequence*> running_;  // sorted by rank
  std::vector<Sequence*> awaiting_kv_;
  int32_t waiting_reservations_ = 0;
  int32_t held_ = 0;                    // requests that wait for PeerReady, in no queue
  int32_t expected_blocks_ = 0;         // of held kDecode requests
  std::vector<Sequence*> store_later_;  // sequences for StoreBlocks, set by Commit
  int64_t waiting_tokens_ = 0;
  int32_t slots_ = 0;     // slots in use by running and awaiting sequences, at most slot_limit_
  int32_t promised_ = 0;  // the sum of Sequence::promised
  uint64_t last_serial_ = 0;
  Time next_expiry_ = kNever;  // no request expires earlier

  StepQueue steps_;
  StepPlan* plan_ = nullptr;  // the plan that Plan or PlanAhead makes
  StepShare share_;           // of plan_
  int32_t draft_budget_ = 0;  // drafts that plan_ may still take
  // A sequence found no block while steps were under way. No step is planned until they have ended;
  // then sequences can be preempted.
  bool short_of_blocks_ = false;
  std::vector<Hash128> computing_;  // the next block of each prompt in progress
  // The head of the queue did not fit. It is matched again only when `blocked_need_` blocks are
  // available or after some plans, because matching a long prompt takes time.
  const Sequence* blocked_ = nullptr;
  int32_t blocked_need_ = 0;
  int32_t blocked_plans_ = 0;

  Outcomes outcomes_;
  SchedulerCounts totals_;
};

}  // namespace baton
