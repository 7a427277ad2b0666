#include "tests/integration/router_cluster.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <string_view>

#include <gtest/gtest.h>

#include "tests/fakes/byte_model.h"

// A router, two prefill and two decode workers in one process with tiny real models. Their tokens
// must equal the tokens of a unified worker with the same engine.
namespace baton {
namespace {

constexpr int kRequests = 20;
// All requests fit. The workers touch every page of their arenas when they start, and the default
// is 512 MiB.
const std::string kArena = "engine.kv_memory_mib=16";

class RouterCluster : public ::testing::TestWithParam<const char*> {};

// So few blocks that requests are preempted. Gemma 3 takes three of them for a block of tokens,
// Llama 4 four.
// Models with a window in every other layer take two, and free one of the two soon. A sequence of
// a hybrid model takes a few blocks more for its state.
std::string FewBlocks(const std::string& family) {
  constexpr std::string_view kWithStates[] = {
      "qwen3_next", "nemotron_h", "falcon_h1", "mamba2", "jamba", "kimi_linear"};
  if (std::ranges::find(kWithStates, family) != std::end(kWithStates)) return "engine.kv_blocks=60";
  if (family == "gemma3_text" || family == "llama4_text") return "engine.kv_blocks=120";
  const bool other_layers = family.starts_with("gpt_oss") || family == "gemma2";
  return other_layers ? "engine.kv_blocks=50" : "engine.kv_blocks=40";
}

TEST_P(RouterCluster, DisaggregatedEqualsUnified) {
  const ByteModel model = ByteModel::From(std::string(BATON_TEST_DATA) + "/tiny/" + GetParam());
  std::vector<Answer> unified;
  {
    Cluster alone(model.path(), 0, 1, {.workers = {kArena}});
    unified = alone.AskAll(kRequests);
    EXPECT_TRUE(unified[0].timings.transport().empty());
    alone.ExpectNoLeaks();
  }
  for (const std::vector<std::string>& overrides : std::vector<std::vector<std::string>>{
           {"transfer.transports=[shm]", kArena},
           {"transfer.transports=[tcp]", "engine.max_step_tokens=16", kArena},
           {"engine.max_step_tokens=50", FewBlocks(GetParam())},  // few blocks: preemption
           {"engine.max_step_tokens=8", "engine.prefix_cache=false", kArena},
           {"engine.lookup_drafts=4", "engine.state_checkpoint_tokens=16", kArena}}) {
    SCOPED_TRACE(overrides.front());
    Cluster cluster(model.path(), 2, 2, {overrides});
    const std::vector<Answer> first = cluster.AskAll(kRequests);
    ExpectSame(first, unified);
    EXPECT_FALSE(first[2].timings.transport().empty()) << "no request was handed over";
    ExpectSame(cluster.AskAll(kRequests), unified);  // with hits in the prefix caches
    cluster.ExpectNoLeaks();
  }
}

// A prefill worker computes this request in many small steps and has a long queue meanwhile.
v1::GenerateRequest LongRequest() {
  v1::GenerateRequest request;
  for (int i = 0; i < 480; ++i) request.mutable_tokens()->add_ids(i % 250);
  request.set_max_tokens(2);
  request.set_ignore_eos(true);
  return request;
}

// Decode workers with an ITL target serve prompts alone when the queue of the prefill worker is
// long.
TEST_P(RouterCluster, PromptsOfALongQueueGoToDecodeWorkers) {
  const ByteModel model = ByteModel::From(std::string(BATON_TEST_DATA) + "/tiny/" + GetParam());
  std::vector<Answer> unified;
  {
    Cluster single(model.path(), 0, 1, {.workers = {kArena}});
    unified = single.AskAll(kRequests);
  }
  for (const std::vector<std::string>& overrides :
       std::vector<std::vector<std::string>>{{"engine.max_step_tokens=8", kArena},
                                             {"engine.max_step_tokens=8", FewBlocks(GetParam())}}) {
    SCOPED_TRACE(overrides.back());
    Cluster cluster(model.path(),
                    1,
                    2,
                    {.workers = overrides,
                     .decode = {"engine.max_step_tokens=64", "engine.itl_target_ms=500"},
                     .router = {"local_tokens=0"}});
    const auto alone = [&] { return cluster.RouterMetric("baton_router_served_alone_total"); };
    int handed = 0;
    // From the first requests the router learns how fast the workers are.
    for (int round = 0; round < 200 && (alone() == 0 || handed == 0); ++round) {
      const std::jthread first([&] { EXPECT_TRUE(cluster.Ask(LongRequest()).status.ok()); });
      const std::vector<Answer> answers = cluster.AskAll(kRequests);
      ExpectSame(answers, unified);
      for (const Answer& answer : answers) handed += answer.timings.transport().empty() ? 0 : 1;
    }
    EXPECT_GT(alone(), 0);
    EXPECT_GT(handed, 0);
    cluster.ExpectNoLeaks();
  }
}

INSTANTIATE_TEST_SUITE_P(Models,
                         RouterCluster,
                         ::testing::Values("llama_gqa",
                                           "mistral_window",
                                           "qwen3_moe",
                                           "gemma3_text",
                                           "gpt_oss",
                                           "llama4_text",
                                           "gemma2",
                                           "deepseek_v2_qlora",
                                           "deepseek_v3",
                                           "deepseek_v32",
                                           "qwen3_next",
                                           "nemotron_h",
                                           "falcon_h1",
                                           "mamba2",
                                           "jamba",
                                           "kimi_linear",
                                           "llama_awq_int4",
                                           "qwen3_moe_fp8_block",
                                           "gpt_oss_mxfp4"));

}  // namespace
}  // namespace baton
