#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/fakes/byte_model.h"
#include "tests/integration/router_cluster.h"

// Long prompts that oversubscribe small arenas, with default settings and no fault: prefill and
// decode workers must not wait for each other's blocks. The tokens equal those of a unified worker.
namespace baton {
namespace {

constexpr int kRequests = 24;
constexpr const char* kArena = "engine.kv_blocks=40";  // 640 tokens

v1::GenerateRequest LongPrompt(int number) {
  v1::GenerateRequest request;
  for (int i = 0; i < 20 + number * 97 % 460; ++i) {
    request.mutable_tokens()->add_ids((i * 3 + number * 7) % 250);
  }
  request.set_max_tokens(2 + number * 5 % 30);
  request.set_ignore_eos(true);
  request.set_priority(number % 3);
  return request;
}

std::vector<Answer> AskForAll(Cluster& cluster) {
  std::vector<Answer> answers(kRequests);
  std::vector<std::jthread> clients;
  for (int i = 0; i < kRequests; ++i) {
    clients.emplace_back([&, i] { answers[static_cast<size_t>(i)] = cluster.Ask(LongPrompt(i)); });
  }
  clients.clear();
  return answers;
}

struct Shape {
  int prefill;
  int decode;
  std::vector<std::string> overrides;
};

TEST(SmallArenaTest, LongPromptsAreAnswered) {
  const ByteModel model = ByteModel::From(std::string(BATON_TEST_DATA) + "/tiny/llama_gqa");
  std::vector<Answer> unified;
  {
    Cluster alone(model.path(), 0, 1, {{kArena}});
    unified = AskForAll(alone);
  }
  const std::vector<std::string> plain = {kArena};
  const std::vector<std::string> priority = {kArena, "engine.policy=priority"};
  for (const auto& [prefill, decode, overrides] : std::vector<Shape>{
           {1, 1, plain}, {2, 1, plain}, {2, 2, plain}, {1, 1, priority}, {2, 2, priority}}) {
    SCOPED_TRACE(testing::Message()
                 << prefill << " prefill, " << decode << " decode workers, " << overrides.back());
    Cluster cluster(model.path(), prefill, decode, {overrides});
    ExpectSame(AskForAll(cluster), unified);
    ExpectSame(AskForAll(cluster), unified);
    cluster.ExpectNoLeaks();
  }
}

// Workers that do both prefill for each other.
TEST(SmallArenaTest, UnifiedWorkersThatPrefillForEachOther) {
  const ByteModel model = ByteModel::From(std::string(BATON_TEST_DATA) + "/tiny/llama_gqa");
  std::vector<Answer> alone;
  {
    Cluster single(model.path(), 0, 1, {{kArena}});
    alone = AskForAll(single);
  }
  for (const int workers : {2, 3}) {
    Cluster cluster(model.path(),
                    0,
                    workers,
                    {.workers = {kArena, "engine.policy=priority"},
                     .decode = {"unified=true"},
                     .router = {"local_tokens=0"}});
    ExpectSame(AskForAll(cluster), alone);
    ExpectSame(AskForAll(cluster), alone);
    cluster.ExpectNoLeaks();
  }
}

}  // namespace
}  // namespace baton
