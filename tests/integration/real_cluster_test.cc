#include <filesystem>
#include <thread>
#include <vector>

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

// Answers whose schema names properties again and again, so that most of them is forced or
// repeated.
std::vector<Answer> AskForObjects(Cluster& cluster) {
  std::vector<Answer> answers(4);
  std::vector<std::jthread> clients;
  for (size_t i = 0; i < answers.size(); ++i) {
    v1::GenerateRequest request;
    request.set_text("Three people, each with a name and an age:");
    request.mutable_grammar()->set_json_schema(R"({"type": "array", "minItems": 3, "maxItems": 3,
        "items": {"type": "object", "required": ["first_name", "age_in_years"],
                  "properties": {"first_name": {"type": "string", "maxLength": 16},
                                 "age_in_years": {"type": "integer"}}}})");
    request.set_max_tokens(i == 3 ? 41 : 160);
    request.set_echo_tokens(true);
    request.mutable_sampling()->set_temperature(i % 2 == 0 ? 0.0F : 0.8F);
    request.mutable_sampling()->set_seed(i);
    clients.emplace_back([&, i, request] { answers[i] = cluster.Ask(request); });
  }
  clients.clear();
  return answers;
}

TEST(RealCluster, DraftsChangeNoConstrainedAnswer) {
  const std::string model = BATON_TEST_MODEL;
  std::vector<Answer> plain;
  {
    Cluster alone(model, 0, 1, {{"engine.kv_memory_mib=128"}});
    plain = AskForObjects(alone);
  }
  for (const int prefill : {0, 1}) {
    Cluster cluster(model, prefill, 1, {{"engine.lookup_drafts=5", "engine.kv_memory_mib=128"}});
    ExpectSame(AskForObjects(cluster), plain);
    EXPECT_GT(cluster.Sum("baton_drafts_accepted_total"), 60);
    cluster.ExpectNoLeaks();
  }
}

}  // namespace
}  // namespace baton
