// Host time that the engine adds to a step, without a model. It must be small beside a 2 ms step.
#include <benchmark/benchmark.h>

#include "common/engine/batch.h"
#include "common/engine/scheduler.h"

namespace baton {
namespace {

constexpr int32_t kBlockTokens = 16;

Request MakeRequest(uint64_t id, int32_t length) {
  Request request;
  request.id = RequestId(id);
  std::vector<TokenId> tokens;
  for (int32_t i = 0; i < length; ++i) {
    tokens.push_back(static_cast<TokenId>((id * 7919 + static_cast<uint64_t>(i) * 31) % 50000));
  }
  request.tokens = std::move(tokens);
  request.prompt_length = length;
  request.max_tokens = 1 << 20;
  return request;
}

Scheduler::Options Options(int32_t sequences) {
  Scheduler::Options options;
  options.engine.max_sequences = sequences;
  options.engine.max_step_tokens = 1 << 20;
  options.limits = {.context_length = 1 << 21, .vocabulary = 50000, .max_samples = sequences};
  return options;
}

// Decoding sequences of about 1,000 tokens each. Every step contains all of them.
struct Decoding {
  explicit Decoding(int32_t sequences, const std::vector<KvWindow>& windows = {0})
      : cache(1 << 19, kBlockTokens, true, windows), scheduler(Options(sequences), cache) {
    for (int32_t i = 0; i < sequences; ++i) scheduler.Add(MakeRequest(i, 1000), now);
    Step();
  }

  void Step() {
    now += std::chrono::milliseconds(2);
    const StepPlan& plan = scheduler.Plan(now);
    sampled.assign(plan.logit_rows, {});
    for (SampledToken& token : sampled) token.token = ++next % 50000;
    scheduler.Commit(sampled, now);
    benchmark::DoNotOptimize(scheduler.TakeOutcomes());
    cache.prefix().TakeEvents();
  }

  KvCache cache;
  Scheduler scheduler;
  Time now = Time{} + std::chrono::hours(1);
  std::vector<SampledToken> sampled;
  TokenId next = 0;
};

void PlanAndCommit(benchmark::State& state) {
  Decoding decoding(static_cast<int32_t>(state.range(0)));
  while (state.KeepRunning()) decoding.Step();
  state.counters["sequences"] = static_cast<double>(state.range(0));
}
BENCHMARK(PlanAndCommit)
    ->Name("BM_PlanAndCommit")
    ->Arg(32)
    ->Arg(256)
    ->Arg(1024)
    ->Iterations(4000)
    ->Unit(benchmark::kMicrosecond);

// The same with the blocks stored, for one cache group, and for two: one of them has a window.
void PlanAndCommitGroups(benchmark::State& state) {
  const std::vector<KvWindow> windows = {0, 128};
  Decoding decoding(256, {windows.begin(), windows.begin() + state.range(0)});
  while (state.KeepRunning()) {
    decoding.Step();
    decoding.scheduler.StoreBlocks();
  }
  state.counters["groups"] = static_cast<double>(state.range(0));
}
BENCHMARK(PlanAndCommitGroups)
    ->Name("BM_PlanAndCommitGroups")
    ->Arg(1)
    ->Arg(2)
    ->Iterations(4000)
    ->Unit(benchmark::kMicrosecond);

void BuildBatch(benchmark::State& state) {
  Decoding decoding(static_cast<int32_t>(state.range(0)));
  const StepPlan& plan = decoding.scheduler.Plan(decoding.now);
  Batch batch;
  while (state.KeepRunning()) batch.Build(plan);
}
BENCHMARK(BuildBatch)->Name("BM_BuildBatch")->Arg(256)->Arg(1024)->Unit(benchmark::kMicrosecond);

void HashBlocks(benchmark::State& state) {
  const Request request = MakeRequest(1, static_cast<int32_t>(state.range(0)));
  while (state.KeepRunning()) {
    benchmark::DoNotOptimize(BlockHashes(request.tokens, kBlockTokens, {}));
  }
}
BENCHMARK(HashBlocks)
    ->Name("BM_BlockHashes")
    ->Arg(4000)
    ->Arg(100000)
    ->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace baton

BENCHMARK_MAIN();
