// The time of one routing decision for a tokenised prompt: hash the blocks, look the hashes up in
// the prefix index, choose the workers and record the request as their load.
// `--benchmark_format=json` prints machine-readable results.
#include <memory>
#include <random>
#include <vector>

#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include "common/kvcache/block_hash.h"
#include "router/core/router_core.h"

namespace baton::router {
namespace {

constexpr Time kStart{std::chrono::hours(1)};
constexpr int kWorkers = 16;  // 8 prefill, 8 decode

std::vector<TokenId> Prompt(size_t tokens, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<TokenId> prompt(tokens);
  for (TokenId& token : prompt) token = static_cast<TokenId>(random() % 100'000);
  return prompt;
}

// A router whose prefix index holds `entries` random blocks and, for each worker, the first
// quarter, half, three quarters or all of each prompt's blocks.
class Cluster {
 public:
  Cluster(size_t tokens, size_t entries) {
    CoreOptions options;
    options.index_capacity = size_t{1} << 22;
    options.max_requests = 1 << 20;
    options.local_tokens = 64;
    core_ = std::make_unique<RouterCore>(options);
    for (int i = 0; i < kWorkers; ++i) {
      WorkerInfo info;
      info.id = WorkerId(fmt::format("w{}", i));
      info.can_prefill = i < kWorkers / 2;
      info.can_decode = !info.can_prefill;
      info.block_tokens = 16;
      info.blocks = 1 << 20;
      info.max_sequences = 256;
      info.max_step_tokens = 2048;
      slots_.push_back(*core_->Join(info, kStart));
      WorkerReport report;
      report.load.emplace();
      report.load->engine.blocks_free = 1 << 20;
      report.load->engine.step_ms_base = 2;
      report.load->engine.step_ms_per_token = 0.02;
      report.load->engine.step_ms_per_prompt_token = 0.02;
      core_->OnReport(slots_.back(), report, kStart);
    }
    for (size_t i = 0; i < kPrompts; ++i) prompts_.push_back(Prompt(tokens, i));
    std::mt19937_64 random(1);
    for (int i = 0; i < kWorkers; ++i) {
      WorkerReport report;
      CacheEvent event{1, CacheEvent::Kind::kStored, {}};
      for (size_t n = 0; n < entries / kWorkers; ++n) event.blocks.push_back({random(), random()});
      for (const auto& prompt : prompts_) {
        auto hashes = BlockHashes(prompt, 16, {0, {}, ""});
        hashes.resize(hashes.size() * (random() % 4 + 1) / 4);
        event.blocks.insert(event.blocks.end(), hashes.begin(), hashes.end());
      }
      report.cache_events.push_back(std::move(event));
      core_->OnReport(slots_[i], report, kStart);
    }
  }

  // Measures one decision, with the hashing before it and the destruction of its commands. The
  // request is cancelled after the measurement.
  void Decide(benchmark::State& state) {
    auto spec = std::make_shared<RequestSpec>();
    spec->id = RequestId(++requests_);
    spec->prompt = prompts_[requests_ % kPrompts];
    const auto start = std::chrono::steady_clock::now();
    spec->hashes = BlockHashes(spec->prompt, 16, {0, {}, ""});
    core_->Submit(spec, kStart);
    core_->TakeActions(actions_);
    actions_.commands.clear();
    const auto end = std::chrono::steady_clock::now();
    state.SetIterationTime(ToSeconds(end - start));
    core_->Cancel(spec->id, Status(StatusCode::kCancelled, "measured"), kStart);
    core_->TakeActions(actions_);
  }

 private:
  static constexpr size_t kPrompts = 16;
  std::unique_ptr<RouterCore> core_;
  CoreActions actions_;
  std::vector<WorkerSlot> slots_;
  std::vector<std::vector<TokenId>> prompts_;
  uint64_t requests_ = 0;
};

void Decide(benchmark::State& state) {
  Cluster cluster(static_cast<size_t>(state.range(0)), static_cast<size_t>(state.range(1)));
  while (state.KeepRunning()) cluster.Decide(state);
  state.counters["decisions_per_second"] =
      benchmark::Counter(static_cast<double>(state.iterations()), benchmark::Counter::kIsRate);
}
BENCHMARK(Decide)
    ->Name("BM_Decision")
    ->ArgNames({"tokens", "index"})
    ->Args({100, 1'000'000})
    ->Args({4'000, 1'000'000})
    ->Args({100'000, 1'000'000})
    ->UseManualTime()
    ->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace baton::router

BENCHMARK_MAIN();
