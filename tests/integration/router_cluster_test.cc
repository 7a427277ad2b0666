#include "tests/integration/router_cluster.h"

#include <gtest/gtest.h>

#include "tests/fakes/byte_model.h"

// A router, two prefill and two decode workers in one process, on tiny real models, against the
// same engine serving whole requests by itself: the tokens must be the same.
namespace baton {
namespace {

constexpr int kRequests = 20;

class RouterCluster : public ::testing::TestWithParam<const char*> {};

TEST_P(RouterCluster, DisaggregatedEqualsUnified) {
  const ByteModel model = ByteModel::From(std::string(BATON_TEST_DATA) + "/tiny/" + GetParam());
  std::vector<Answer> unified;
  {
    Cluster alone(model.path(), 0, 1, {});
    unified = alone.AskAll(kRequests);
    EXPECT_TRUE(unified[0].timings.transport().empty());
    alone.ExpectNoLeaks();
  }
  for (const std::vector<std::string>& overrides : std::vector<std::vector<std::string>>{
           {"transfer.transports=[shm]"},
           {"transfer.transports=[tcp]", "engine.max_step_tokens=16"},
           {"engine.max_step_tokens=50", "engine.kv_blocks=40"},  // few blocks: preemption
           {"engine.max_step_tokens=8", "engine.prefix_cache=false"}}) {
    SCOPED_TRACE(overrides.front());
    Cluster cluster(model.path(), 2, 2, overrides);
    const std::vector<Answer> first = cluster.AskAll(kRequests);
    ExpectSame(first, unified);
    EXPECT_FALSE(first[2].timings.transport().empty()) << "nothing was handed over";
    ExpectSame(cluster.AskAll(kRequests), unified);  // now with prefix hits
    cluster.ExpectNoLeaks();
  }
}

INSTANTIATE_TEST_SUITE_P(Models,
                         RouterCluster,
                         ::testing::Values("llama_gqa", "mistral_window", "qwen3_moe"));

}  // namespace
}  // namespace baton
