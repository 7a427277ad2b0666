// Host time to plan a hand-off between workers of unequal shape: 8 ranks send to 2 ranks.
#include <cstdint>
#include <vector>

#include <benchmark/benchmark.h>

#include "common/base/check.h"
#include "kvtransfer/data_plane/planner.h"

namespace baton {
namespace {

constexpr int32_t kHeads = 8;

// Ranks of equal size; each holds all layers of its heads.
std::vector<KvShard> Ranks(const KvLayout& layout, int32_t count) {
  std::vector<KvShard> shards;
  for (int32_t rank = 0; rank < count; ++rank) {
    const int32_t heads = kHeads / count;
    shards.push_back({0, layout.layers(), rank * heads, heads});
  }
  return shards;
}

std::vector<BlockPair> Pairs(int64_t count) {
  std::vector<BlockPair> pairs;
  for (uint32_t i = 0; i < static_cast<uint32_t>(count); ++i) {
    pairs.push_back({BlockId(i), BlockId(i + 7)});
  }
  return pairs;
}

// The links, and every run of `blocks` blocks in one layer on every link.
void PlanLayer(benchmark::State& state) {
  const KvLayout layout =
      DenseLayout({.layers = 1, .kv_heads = kHeads, .head_dim = 128, .block_tokens = 16});
  const std::vector<KvShard> from = Ranks(layout, 8);
  const std::vector<KvShard> to = Ranks(layout, 2);
  const std::vector<BlockPair> pairs = Pairs(state.range(0));
  size_t runs = 0;
  while (state.KeepRunning()) {
    const auto links = PlanLinks(layout, from, to);
    BATON_CHECK(links.ok(), "{}", Message(links.status()));
    runs = 0;
    for (const KvLink& link : *links) {
      runs += PlanRuns(layout, from[link.source], to[link.destination], link, pairs).size();
    }
  }
  state.counters["runs"] = static_cast<double>(runs);
}
BENCHMARK(PlanLayer)->Arg(1250)->Arg(10'000)->Unit(benchmark::kMicrosecond);

// What one sending rank plans: the runs of `blocks` blocks in one layer on its one link.
void PlanLink(benchmark::State& state) {
  const KvLayout layout =
      DenseLayout({.layers = 1, .kv_heads = kHeads, .head_dim = 128, .block_tokens = 16});
  const std::vector<KvShard> from = Ranks(layout, 8);
  const std::vector<KvShard> to = Ranks(layout, 2);
  const std::vector<BlockPair> pairs = Pairs(state.range(0));
  const auto links = PlanLinks(layout, from, to);
  BATON_CHECK(links.ok(), "{}", Message(links.status()));
  const KvLink& link = links->front();
  while (state.KeepRunning()) {
    benchmark::DoNotOptimize(
        PlanRuns(layout, from[link.source], to[link.destination], link, pairs));
  }
}
BENCHMARK(PlanLink)->Arg(10'000)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace baton

BENCHMARK_MAIN();
