#include <algorithm>
#include <deque>
#include <map>
#include <random>
#include <set>

#include <gtest/gtest.h>

#include "common/engine/scheduler.h"
#include "tests/fakes/engine_harness.h"

namespace baton {
namespace {

using Random = std::mt19937_64;

Scheduler::Options RandomOptions(Random& random) {
  Scheduler::Options options;
  EngineOptions& engine = options.engine;
  engine.max_sequences = static_cast<int32_t>(1 + random() % 16);
  engine.max_step_tokens = static_cast<int32_t>(1 + random() % 48);
  engine.full_step_tokens = static_cast<int32_t>(1 + random() % 48);
  engine.repeat_output_singly = random() % 2 == 0;
  engine.policy = static_cast<SchedulingPolicy>(random() % 4);
  engine.admission = static_cast<AdmissionPolicy>(random() % 2);
  options.limits = {.context_length = 200,
                    .vocabulary = 1000,
                    .max_samples = std::min(engine.max_sequences, engine.max_step_tokens),
                    .scored_rows = 5};
  return options;
}

// Of one to three cache groups.
std::vector<KvWindow> RandomWindows(Random& random) {
  std::vector<KvWindow> windows(1 + random() % 3);
  for (KvWindow& window : windows) {
    if (random() % 2 == 0) continue;
    window = static_cast<int32_t>(1 + random() % 20);
    window.chunked = random() % 3 == 0;
  }
  return windows;
}

// One cache in three has states.
KvCache RandomCache(Random& random) {
  const auto blocks = static_cast<int32_t>(8 + random() % 40);
  const bool prefix_cache = random() % 2 == 0;
  if (random() % 3 == 0) {
    const auto state = static_cast<int32_t>(1 + random() % 3);
    return KvCache(blocks, 4, prefix_cache, {0, kStateWindow}, state);
  }
  return KvCache(blocks, 4, prefix_cache, RandomWindows(random));
}

// The samples in the running batch.
std::set<std::pair<RequestId, int32_t>> Running(const Scheduler& scheduler) {
  std::set<std::pair<RequestId, int32_t>> running;
  for (const Sequence* sequence : scheduler.running()) {
    running.insert({sequence->request->request.id, sequence->index});
  }
  return running;
}

// Checks that the plan keeps its budgets, has each sequence at most once, continues each sequence
// where it stopped, and has a row for every decoding sequence. `left`: the requests with a
// sequence that has left the running batch before.
void CheckPlan(const Scheduler& scheduler,
               const StepPlan& plan,
               const std::set<RequestId>& left,
               const KvCache& cache,
               const Scheduler::Options& options) {
  int32_t tokens = 0;
  int32_t samples = 0;
  int32_t scored = 0;
  std::set<const Sequence*> planned;
  bool in_prompts = false;
  for (const PlanRow& row : plan.rows) {
    ASSERT_TRUE(planned.insert(row.sequence).second);
    ASSERT_EQ(row.sequence->state, SequenceState::kRunning);
    ASSERT_EQ(row.first, row.sequence->computed);
    ASSERT_GE(row.count, 1);
    ASSERT_LE(row.first + row.count, row.sequence->length());
    ASSERT_LE(cache.BlocksFor(row.first + row.count), row.sequence->table.size());
    ASSERT_EQ(row.samples > 0, row.first + row.count == row.sequence->length());
    const int32_t written = row.first / cache.block_tokens();
    ASSERT_TRUE(row.sequence->table.HasRoom(written + 1, written)) << "a shared block is written";
    const bool prompt = row.sequence->remaining() > 1;
    ASSERT_TRUE(prompt || !in_prompts || left.contains(row.sequence->request->request.id) ||
                row.sequence->request->times.cached_tokens > 0 || row.sequence->length() == 1);
    in_prompts |= prompt;
    tokens += row.count;
    samples += row.samples;
    scored += row.scored;
  }
  ASSERT_EQ(tokens, plan.tokens);
  ASSERT_EQ(samples + scored, plan.logit_rows);
  ASSERT_LE(scored, options.limits.scored_rows);
  ASSERT_LE(tokens, options.engine.max_step_tokens);
  ASSERT_LE(samples, options.engine.max_sequences);
  for (const Sequence* sequence : scheduler.running()) {
    const bool ended = sequence->length() >= sequence->request->longest;  // by its foreseen token
    if (sequence->remaining() == 1 && !ended) {
      ASSERT_TRUE(planned.contains(sequence)) << "a decode starves";
    }
  }
}

TEST(SchedulerRandomTest, PlansKeepToTheirBudgetsAndDecodesNeverStarve) {
  int plans_ahead = 0;
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    const Scheduler::Options options = RandomOptions(random);
    KvCache cache = RandomCache(random);
    Scheduler scheduler(options, cache);
    Time now = Time{} + std::chrono::hours(1);
    size_t submitted = 0;
    size_t ended = 0;
    int stalled = 0;
    std::set<RequestId> left;
    const auto note_left = [&](const std::set<std::pair<RequestId, int32_t>>& before) {
      const auto after = Running(scheduler);
      for (const auto& sample : before) {
        if (!after.contains(sample)) left.insert(sample.first);
      }
    };
    while (submitted < 50 || !scheduler.idle()) {
      now += std::chrono::milliseconds(1);
      if (submitted < 50 && random() % 2 == 0) {
        Request request = MakeRequest(
            ++submitted, 1 + random() % 30, random() % 4, static_cast<int32_t>(1 + random() % 20));
        request.samples = static_cast<int32_t>(1 + random() % 2);
        if (random() % 4 == 0) request.prompt_logprobs = 0;
        scheduler.Add(request, now);
      }
      auto before = Running(scheduler);
      const StepPlan& plan = scheduler.Plan(now);
      note_left(before);
      CheckPlan(scheduler, plan, left, cache, options);
      stalled = plan.rows.empty() ? stalled + 1 : 0;
      ASSERT_LT(stalled, 100) << "there are requests, but none is computed";
      std::deque<int32_t> under_way;
      if (!plan.rows.empty()) under_way.push_back(plan.logit_rows);
      do {
        if (random() % 30 == 0) scheduler.Cancel({RequestId(1 + random() % 50), Epoch(0)});
        before = Running(scheduler);
        const StepPlan* ahead = random() % 4 == 0 ? nullptr : scheduler.PlanAhead(now);
        if (ahead != nullptr) {
          ++plans_ahead;
          note_left(before);
          CheckPlan(scheduler, *ahead, left, cache, options);
          under_way.push_back(ahead->logit_rows);
        }
        if (!under_way.empty()) {
          std::vector<SampledToken> sampled(under_way.front());
          for (SampledToken& token : sampled) token.token = static_cast<TokenId>(random() % 1000);
          scheduler.Commit(sampled, now);
          scheduler.StoreBlocks();
          under_way.pop_front();
        }
        const Status status = scheduler.CheckIntegrity();
        ASSERT_TRUE(status.ok()) << status;
        EXPECT_EQ(scheduler.LeakedBlocks(), 0);
        const Outcomes outcomes = scheduler.TakeOutcomes();
        ended += outcomes.finished.size() + outcomes.failures.size();
        if (HasFailure()) return;
      } while (!under_way.empty());
    }
    EXPECT_EQ(ended, submitted);
    EXPECT_EQ(cache.available(), cache.total());
  }
  EXPECT_GT(plans_ahead, 500);
}

// Checks that a plan of a pipeline keeps its part of the budgets, and continues each sequence where
// the plans under way stop.
void CheckPipelinePlan(const StepPlan& plan,
                       const std::vector<StepPlan>& under_way,
                       const KvCache& cache,
                       const Scheduler::Options& options) {
  int32_t tokens = 0;
  int32_t samples = 0;
  int32_t scored = 0;
  std::set<const Sequence*> planned;
  for (const PlanRow& row : plan.rows) {
    ASSERT_TRUE(planned.insert(row.sequence).second);
    ASSERT_EQ(row.sequence->state, SequenceState::kRunning);
    ASSERT_EQ(row.first + row.count, row.sequence->planned());
    ASSERT_GE(row.count, 1);
    ASSERT_EQ(row.samples > 0, row.sequence->unplanned() == 0);
    ASSERT_LE(cache.BlocksFor(row.first + row.count), row.sequence->table.size());
    const int32_t written = row.first / cache.block_tokens();
    ASSERT_TRUE(row.sequence->table.HasRoom(written + 1, written)) << "a shared block is written";
    for (const StepPlan& other : under_way) {
      for (const PlanRow& earlier : other.rows) {
        if (earlier.sequence != row.sequence) continue;
        ASSERT_EQ(earlier.samples, 0) << "a sequence decodes in two steps under way";
        ASSERT_LE(earlier.first + earlier.count, row.first);
      }
    }
    tokens += row.count;
    samples += row.samples;
    scored += row.scored;
  }
  ASSERT_EQ(tokens, plan.tokens);
  ASSERT_EQ(samples + scored, plan.logit_rows);
  ASSERT_LE(scored, options.limits.scored_rows);
  ASSERT_LE(samples, options.engine.max_sequences);
  const int32_t stages = options.stages;
  // A step from which sequences were preempted may have all decodes.
  const int32_t most = options.engine.max_step_tokens;
  ASSERT_LE(tokens, under_way.empty() ? most : (most + stages - 1) / stages);
}

TEST(SchedulerRandomTest, StepsOfAPipelineAreDisjointAndNoDecodeStarves) {
  std::map<size_t, int> plans;  // by plans under way
  int64_t preemptions = 0;
  for (uint64_t seed = 1; seed <= 150; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    Scheduler::Options options = RandomOptions(random);
    options.stages = static_cast<int32_t>(2 + seed % 3);
    KvCache cache = RandomCache(random);
    Scheduler scheduler(options, cache);
    Time now = Time{} + std::chrono::hours(1);
    size_t submitted = 0;
    size_t ended = 0;
    std::vector<StepPlan> under_way;
    std::map<const Sequence*, int> waits;  // steps since a decoding sequence was in one
    const auto check = [&] {
      const Status status = scheduler.CheckIntegrity();
      ASSERT_TRUE(status.ok()) << status;
      EXPECT_EQ(scheduler.LeakedBlocks(), 0);
      const Outcomes outcomes = scheduler.TakeOutcomes();
      ended += outcomes.finished.size() + outcomes.failures.size();
    };
    while (submitted < 50 || !scheduler.idle() || !under_way.empty()) {
      now += std::chrono::milliseconds(1);
      if (submitted < 50 && random() % 2 == 0) {
        Request request = MakeRequest(
            ++submitted, 1 + random() % 30, random() % 4, static_cast<int32_t>(1 + random() % 20));
        request.samples = static_cast<int32_t>(1 + random() % 2);
        if (random() % 4 == 0) request.prompt_logprobs = 0;
        scheduler.Add(request, now);
      }
      if (random() % 30 == 0) scheduler.Cancel({RequestId(1 + random() % 50), Epoch(0)});
      if (random() % 30 == 0) scheduler.StopSample({RequestId(1 + random() % 50), Epoch(0)}, 1);
      check();
      if (HasFailure()) return;
      while (scheduler.can_plan() && random() % 4 != 0) {
        const StepPlan& plan = scheduler.Plan(now);
        CheckPipelinePlan(plan, under_way, cache, options);
        const bool empty = plan.rows.empty();
        if (!empty) {
          ++plans[under_way.size()];
          under_way.push_back(plan);
        }
        check();
        if (HasFailure()) return;
        if (empty) break;
      }
      if (under_way.empty()) continue;
      if (random() % 100 == 0) {
        scheduler.Abort(MakeStatus(StatusCode::kInternal, "the step failed"));
        under_way.clear();
        check();
        continue;
      }
      std::map<const Sequence*, int> still;
      for (const Sequence* sequence : scheduler.running()) {
        if (sequence->remaining() != 1 || sequence->under_way > 0) continue;
        still[sequence] = waits[sequence] + 1;
        ASSERT_LT(still[sequence], 40) << "a decode starves";
      }
      waits = still;
      std::vector<SampledToken> sampled(under_way.front().logit_rows);
      for (SampledToken& token : sampled) token.token = static_cast<TokenId>(random() % 1000);
      scheduler.Commit(sampled, now);
      scheduler.StoreBlocks();
      under_way.erase(under_way.begin());
      check();
      if (HasFailure()) return;
    }
    preemptions += scheduler.Counts().preemptions;
    EXPECT_EQ(ended, submitted);
    EXPECT_EQ(cache.available(), cache.total());
  }
  for (size_t behind = 0; behind < 4; ++behind) EXPECT_GT(plans[behind], 500) << behind;
  EXPECT_GT(preemptions, 50);
}

}  // namespace
}  // namespace baton
