#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/model/dummy_weights.h"
#include "common/model/open_model.h"
#include "tests/fakes/engine_harness.h"
#include "tests/fakes/fake_router.h"
#include "tests/fakes/worker_node.h"
#include "tests/integration/thread_ranks.h"

// Hand-offs from every shape of a prefill worker to every shape of a decode worker. The ranks
// compute with a real decoder and random weights, and the tokens must be those of one rank.
namespace baton {
namespace {

namespace pb = worker::v1;

constexpr int32_t kLength = 75;  // several chunks, and a last block that is not full
constexpr int32_t kTokens = 8;

// A model of two stages with 12 heads. `kv_heads` 12 allows 1, 2, 3 and 4 tensor ranks; with 2 KV
// heads, each KV head is on two of 4 ranks.
ModelSpec SpecOf(const std::string& family, int32_t kv_heads) {
  ModelSpec spec = LoadModelSpec(std::string(BATON_TEST_DATA) + "/tiny/" + family).value();
  spec.heads = 12;
  spec.kv_heads = kv_heads;
  spec.vocab = 1000;
  return spec;
}

KvOptions Kv() {
  return {.blocks = 96, .block_tokens = 16, .dtype = DType::kF32};
}

EngineOptions Steps() {
  EngineOptions options;
  options.max_step_tokens = 40;
  options.max_sequences = 16;
  return options;
}

// Every request is sampled, so that a change of a bit changes the tokens.
Request Numbered(uint64_t id) {
  Request request = MakeRequest(id, kLength, 2 * id + 1, kTokens);
  request.epoch = Epoch(1);
  return request;
}

class HandoffShapes : public ::testing::TestWithParam<const char*> {
 protected:
  struct Group {
    std::string name;
    std::unique_ptr<ThreadRanks> ranks;
    std::unique_ptr<WorkerNode> node;
  };

  void Check(const std::string& family, int32_t kv_heads, const std::vector<GroupShape>& shapes) {
    const ModelSpec spec = SpecOf(family, kv_heads);
    std::vector<Group> prefill;
    std::vector<Group> decode;
    for (const GroupShape& shape : shapes) {
      prefill.push_back(StartGroup(spec, shape, true));
      decode.push_back(StartGroup(spec, shape, false));
    }
    for (const auto* groups : {&prefill, &decode}) {
      for (const Group& group : *groups) router_.AwaitJoin(group.name);
    }
    uint64_t id = 0;
    for (Group& from : prefill) {
      for (Group& to : decode) Dispatch(Numbered(++id), *from.node, *to.node);
    }
    const auto expected = TokensOfOneRank(spec, id);
    id = 0;
    for (Group& from : prefill) {
      for (Group& to : decode) {
        ++id;
        SCOPED_TRACE(from.name + " to " + to.name);
        EXPECT_EQ(TokensOf(id, from, to), expected.at(id));
      }
    }
    for (auto* groups : {&prefill, &decode}) {
      for (Group& group : *groups) group.node->ExpectNothingHeld();
    }
  }

 private:
  Group StartGroup(const ModelSpec& spec, const GroupShape& shape, bool prefill) {
    Group group;
    group.name = fmt::format(
        "{}_tp{}_pp{}", prefill ? "p" : "d", shape.tensor_parallel, shape.pipeline_parallel);
    group.ranks = std::make_unique<ThreadRanks>(spec, weights_, shape, Kv());
    NodeOptions options;
    options.id = group.name;
    options.router = router_.address();
    options.prefill = prefill;
    options.decode = !prefill;
    options.transport = GetParam();
    options.engine = Steps();
    options.match_wait = options.redirect_wait = std::chrono::seconds(60);
    group.node = std::make_unique<WorkerNode>(options, group.ranks->executor());
    return group;
  }

  static void SetPeer(WorkerNode& node, pb::Peer& peer) {
    peer.set_worker_id(node.id());
    peer.set_boot_id(node.boot());
    peer.set_kv_address(node.kv_address());
  }

  void Send(const Request& request, pb::Dispatch::Kind kind, WorkerNode& to, WorkerNode& peer) {
    pb::ToWorker message;
    pb::Dispatch& dispatch = *message.add_dispatches();
    dispatch = MakeDispatch(request, kind);
    dispatch.set_session_id(request.id.value());
    SetPeer(peer, *dispatch.mutable_peer());
    router_.Send(to.id(), message);
  }

  void Dispatch(const Request& request, WorkerNode& from, WorkerNode& to) {
    Send(request, pb::Dispatch::DECODE, to, from);
    Send(request, pb::Dispatch::PREFILL, from, to);
  }

  // The tokens of both workers; checks that the hand-off moved the KV.
  std::vector<TokenId> TokensOf(uint64_t id, const Group& from, const Group& to) {
    const FakeRouter::WorkerReports first = router_.AwaitEnd(from.name, id);
    EXPECT_TRUE(first.finished.has_value()) << first.Ending();
    const FakeRouter::WorkerReports rest = router_.AwaitEnd(to.name, id);
    EXPECT_TRUE(rest.finished.has_value()) << rest.Ending();
    EXPECT_EQ(rest.handoffs.size(), 1U);
    if (!rest.handoffs.empty()) {
      EXPECT_EQ(rest.handoffs[0].outcome(), pb::Handoff::COMMITTED);
      EXPECT_EQ(rest.handoffs[0].transport(), GetParam());
      moved_[to.name].insert(rest.handoffs[0].bytes());
    }
    std::vector<TokenId> tokens = first.Tokens(0);
    const std::vector<TokenId> more = rest.Tokens(0);
    tokens.insert(tokens.end(), more.begin(), more.end());
    return tokens;
  }

  // The tokens of requests 1 … `last` that an engine with one rank computes alone.
  std::map<uint64_t, std::vector<TokenId>> TokensOfOneRank(const ModelSpec& spec, uint64_t last) {
    ThreadRanks one(spec, weights_, {}, Kv());
    RecordingListener listener;
    const ManualClock clock;
    const auto engine = Engine::Create(Steps(), one.executor(), listener, clock).value();
    for (uint64_t id = 1; id <= last; ++id) engine->Submit(Numbered(id));
    while (engine->Step()) {
    }
    std::map<uint64_t, std::vector<TokenId>> tokens;
    for (uint64_t id = 1; id <= last; ++id) {
      tokens[id] = listener.log({RequestId(id), Epoch(1)}).Tokens(0);
      EXPECT_EQ(tokens[id].size(), static_cast<size_t>(kTokens));
    }
    return tokens;
  }

  const DummyWeights weights_{7};
  FakeRouter router_;

 protected:
  std::map<std::string, std::set<uint64_t>> moved_;  // the bytes of hand-offs by decode worker
};

TEST_P(HandoffShapes, EveryShapeHandsOffToEveryShape) {
  std::vector<GroupShape> shapes;
  for (const int tensor : {1, 2, 3, 4}) {
    for (const int stages : {1, 2}) shapes.push_back({tensor, stages});
  }
  Check("llama_gqa", 12, shapes);
}

TEST_P(HandoffShapes, KvHeadsThatSeveralRanksHold) {
  Check("llama_gqa", 2, {{1, 1}, {2, 1}, {4, 1}, {4, 2}});
}

// Cache groups with a window, and one without.
TEST_P(HandoffShapes, LayersWithDifferentWindows) {
  Check("exaone4", 12, {{1, 1}, {2, 1}, {1, 2}, {2, 2}});
}

// The same with sinks of the heads, and experts with biases.
TEST_P(HandoffShapes, SinksAndExpertsWithBiases) {
  Check("gpt_oss", 2, {{1, 1}, {2, 1}, {2, 2}});
}

// The next token is in the second chunk of 64 tokens: of the three layers with chunks only its
// block is sent, of the other layer all.
TEST_P(HandoffShapes, ChunksOfTheNextToken) {
  Check("llama4_text", 2, {{1, 1}, {2, 1}, {1, 2}, {2, 2}});
  constexpr uint64_t kBlocks = (kLength + 15) / 16;
  constexpr uint64_t kChunkBlocks = kBlocks - 64 / 16;
  constexpr uint64_t kBlockBytes =
      uint64_t{2} * 2 * 16 * 16 * 4;  // planes, heads, tokens, dim, F32
  for (const std::string decode : {"d_tp1_pp1", "d_tp2_pp1", "d_tp1_pp2", "d_tp2_pp2"}) {
    EXPECT_THAT(moved_[decode], testing::ElementsAre((kBlocks + 3 * kChunkBlocks) * kBlockBytes))
        << decode;
  }
}

TEST_P(HandoffShapes, ExpertsThatRanksDivide) {
  Check("qwen3_moe", 2, {{1, 1}, {2, 2}, {4, 1}});
}

// Latents, which every tensor rank holds: each of them gets a latent once, however many ranks the
// sender has.
TEST_P(HandoffShapes, LatentsThatEveryRankHolds) {
  Check("deepseek_v2_noqlora", 12, {{1, 1}, {2, 1}, {3, 1}, {4, 2}});
  constexpr uint64_t kBlocks = (kLength + 15) / 16;
  constexpr uint64_t kBlockBytes = uint64_t{3} * 16 * (32 + 8) * 4;  // layers, tokens, latent, F32
  for (const auto& [decode, ranks] : {std::pair<std::string, uint64_t>{"d_tp1_pp1", 1},
                                      {"d_tp2_pp1", 2},
                                      {"d_tp3_pp1", 3},
                                      {"d_tp4_pp2", 4}}) {
    EXPECT_THAT(moved_[decode], testing::ElementsAre(kBlocks * kBlockBytes * ranks)) << decode;
  }
}

// Latents and the index keys beside them.
TEST_P(HandoffShapes, IndexKeysThatEveryRankHolds) {
  Check("deepseek_v32", 12, {{1, 1}, {2, 1}, {1, 2}, {4, 2}});
  constexpr uint64_t kBlocks = (kLength + 15) / 16;
  constexpr uint64_t kBlockBytes =
      uint64_t{3} * 16 * (32 + 16 + 32) * 4;  // layers, tokens, latent and index key, F32
  for (const auto& [decode, ranks] : {std::pair<std::string, uint64_t>{"d_tp1_pp1", 1},
                                      {"d_tp2_pp1", 2},
                                      {"d_tp1_pp2", 1},
                                      {"d_tp4_pp2", 4}}) {
    EXPECT_THAT(moved_[decode], testing::ElementsAre(kBlocks * kBlockBytes * ranks)) << decode;
  }
}

// States beside KV, which ranks divide by heads, and stages by layers: one of two stages has states
// alone. Each receiving worker gets the KV and one state, whole.
TEST_P(HandoffShapes, StatesThatRanksDivide) {
  Check("qwen3_next", 2, {{1, 1}, {2, 1}, {1, 2}, {2, 2}});
  constexpr uint64_t kBlocks = (kLength + 15) / 16;
  constexpr uint64_t kBlockBytes =
      uint64_t{2} * 2 * 16 * 32 * 4;  // planes, heads, tokens, dim, F32
  // Layers; value heads, their matrices; the inputs of the convolution of q, k and v; F32.
  constexpr uint64_t kStateBytes = uint64_t{3} * (4 * 16 * 16 + 4 * (32 + 32 + 64)) * 4;
  for (const std::string decode : {"d_tp1_pp1", "d_tp2_pp1", "d_tp1_pp2", "d_tp2_pp2"}) {
    EXPECT_THAT(moved_[decode], testing::ElementsAre(kBlocks * kBlockBytes + kStateBytes))
        << decode;
  }
}

INSTANTIATE_TEST_SUITE_P(Transports,
                         HandoffShapes,
                         ::testing::Values("shm", "tcp"),
                         [](const auto& test) { return std::string(test.param); });

}  // namespace
}  // namespace baton
