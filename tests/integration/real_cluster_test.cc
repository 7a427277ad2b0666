#include <filesystem>

#include <gtest/gtest.h>

#include "tests/integration/router_cluster.h"

namespace baton {
namespace {

constexpr int kRequests = 10;

TEST(RealCluster, DisaggregatedEqualsUnified) {
  const std::string model = BATON_TEST_MODEL;
  ASSERT_TRUE(std::filesystem::exists(model))
      << "the model \"" << model << "\" is absent: `./dev test` fetches it";
  std::vector<Answer> unified;
  {
    Cluster alone(model, 0, 1, {{"engine.kv_memory_mib=128"}});
    unified = alone.AskAll(kRequests);
  }
  for (const std::vector<std::string>& overrides : std::vector<std::vector<std::string>>{
           {"transfer.transports=[shm]", "engine.kv_memory_mib=128"},
           {"transfer.transports=[tcp]", "engine.max_step_tokens=40", "engine.kv_blocks=60"}}) {
    SCOPED_TRACE(overrides.front());
    Cluster cluster(model, 2, 2, {overrides});
    ExpectSame(cluster.AskAll(kRequests), unified);
    ExpectSame(cluster.AskAll(kRequests), unified);  // with hits in the prefix caches
    cluster.ExpectNoLeaks();
  }
}

}  // namespace
}  // namespace baton
