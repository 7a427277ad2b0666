#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "router/routing/policies/routing_policy.h"
#include "router/routing/policies/worker_cost.h"

namespace baton::router {
namespace {

// A query with workers of equal speed, which the tests then change.
class PolicyTest : public testing::Test {
 protected:
  PolicyTest() {
    for (int i = 0; i < 8; ++i) {
      auto record = std::make_unique<WorkerRecord>();
      record->info.id = WorkerId(fmt::format("w{}", i));
      record->info.block_tokens = 16;
      record->info.blocks = 1000;
      record->info.max_sequences = 32;
      record->info.max_step_tokens = 512;
      record->load.engine.step_ms_base = 2;
      record->load.engine.step_ms_per_token = 0.1;
      record->load.engine.step_ms_per_prompt_token = 0.1;
      records_.push_back(std::move(record));
      Candidate candidate{WorkerSlot(static_cast<uint16_t>(i)), records_.back().get(), {}, 0};
      candidate.load.blocks_free = 1000;
      (i < 4 ? prefill_ : decode_).push_back(candidate);
    }
    query_.prompt_tokens = 1000;
    query_.max_tokens = 100;
    query_.expected_output = 50;
    query_.local_tokens = 64;
  }

  Route Select(PolicyKind kind, uint64_t seed = 1) {
    query_.prefill = prefill_;
    query_.decode = decode_;
    return MakeRoutingPolicy(kind, seed)->Select(query_);
  }

  std::vector<std::unique_ptr<WorkerRecord>> records_;
  std::vector<Candidate> prefill_;
  std::vector<Candidate> decode_;
  RouteQuery query_;
};

constexpr PolicyKind kAll[] = {PolicyKind::kCost,
                               PolicyKind::kRoundRobin,
                               PolicyKind::kLeastLoaded,
                               PolicyKind::kPowerOfTwo,
                               PolicyKind::kPrefixAffinity};

TEST_F(PolicyTest, EveryPolicyServesLocallyWithoutPrefillWorkers) {
  prefill_.clear();
  for (const PolicyKind kind : kAll) {
    const Route route = Select(kind);
    EXPECT_EQ(route.prefill, nullptr) << Name(kind);
    EXPECT_NE(route.decode, nullptr) << Name(kind);
  }
}

TEST_F(PolicyTest, EveryPolicyServesANearlyCachedPromptLocally) {
  for (Candidate& d : decode_) d.cached_tokens = 960;
  for (const PolicyKind kind : kAll) EXPECT_EQ(Select(kind).prefill, nullptr) << Name(kind);
  for (Candidate& d : decode_) d.cached_tokens = 928;
  for (const PolicyKind kind : kAll) EXPECT_NE(Select(kind).prefill, nullptr) << Name(kind);
}

TEST_F(PolicyTest, AShortUncachedPromptIsNotLocal) {
  query_.prompt_tokens = 40;
  EXPECT_NE(Select(PolicyKind::kCost).prefill, nullptr);
}

TEST_F(PolicyTest, EveryPolicySpreadsOverEqualWorkers) {
  for (const PolicyKind kind : kAll) {
    query_.prefill = prefill_;
    query_.decode = decode_;
    auto policy = MakeRoutingPolicy(kind, 7);
    std::map<WorkerSlot, int> prefill;
    std::map<WorkerSlot, int> decode;
    for (int i = 0; i < 400; ++i) {
      const Route route = policy->Select(query_);
      ++prefill[route.prefill->slot];
      ++decode[route.decode->slot];
    }
    EXPECT_EQ(prefill.size(), 4u) << Name(kind);
    EXPECT_EQ(decode.size(), 4u) << Name(kind);
    for (const auto& [slot, count] : prefill) EXPECT_GT(count, 50) << Name(kind);
  }
}

TEST_F(PolicyTest, TheSameSeedChoosesTheSame) {
  for (const PolicyKind kind : kAll) {
    query_.prefill = prefill_;
    query_.decode = decode_;
    auto one = MakeRoutingPolicy(kind, 9);
    auto two = MakeRoutingPolicy(kind, 9);
    for (int i = 0; i < 50; ++i) {
      const Route a = one->Select(query_);
      const Route b = two->Select(query_);
      ASSERT_EQ(a.prefill->slot, b.prefill->slot);
      ASSERT_EQ(a.decode->slot, b.decode->slot);
    }
  }
}

TEST_F(PolicyTest, LoadDrivenPoliciesAvoidTheLoadedWorkers) {
  for (int i = 1; i < 4; ++i) prefill_[i].load.requests = decode_[i].load.requests = 10;
  for (const PolicyKind kind : {PolicyKind::kLeastLoaded, PolicyKind::kCost}) {
    for (int i = 1; i < 4; ++i) prefill_[i].load.queued_tokens = 5000;
    EXPECT_EQ(Select(kind).prefill->slot, WorkerSlot(0)) << Name(kind);
    EXPECT_EQ(Select(kind).decode->slot, WorkerSlot(4)) << Name(kind);
  }
}

TEST_F(PolicyTest, CostWeighsTheCacheAgainstTheQueue) {
  prefill_[2].cached_tokens = 800;  // saves 80 ms
  EXPECT_EQ(Select(PolicyKind::kCost).prefill->slot, WorkerSlot(2));
  prefill_[2].load.queued_tokens = 500;  // costs 52 ms
  EXPECT_EQ(Select(PolicyKind::kCost).prefill->slot, WorkerSlot(2));
  prefill_[2].load.queued_tokens = 900;  // costs 94 ms
  EXPECT_NE(Select(PolicyKind::kCost).prefill->slot, WorkerSlot(2));
}

TEST_F(PolicyTest, CostWeighsTheTransferAgainstTheStepTime) {
  query_.kv_bytes_per_token = 131072;
  query_.transfer_bytes_per_second = 10e9;
  decode_[3].cached_tokens = 512;  // saves 6.7 ms of transfer
  EXPECT_EQ(Select(PolicyKind::kCost).decode->slot, WorkerSlot(7));
  decode_[3].load.requests = 5;  // costs 50 · 0.5 ms
  EXPECT_NE(Select(PolicyKind::kCost).decode->slot, WorkerSlot(7));
}

TEST_F(PolicyTest, CostUsesTheRateThatEachPairMeasured) {
  query_.kv_bytes_per_token = 131072;
  query_.transfer_bytes_per_second = 10e9;  // 13 ms
  const auto measure = [&](double bytes_per_second) {
    for (int i = 0; i < 4; ++i) {
      records_[i]->load.peers[WorkerId("w7")].bytes_per_second = bytes_per_second;
    }
  };
  measure(100e9);
  EXPECT_EQ(Select(PolicyKind::kCost).decode->slot, WorkerSlot(7));
  decode_[3].load.requests = 5;  // costs 50 · 0.5 ms, more than the transfer saves
  EXPECT_NE(Select(PolicyKind::kCost).decode->slot, WorkerSlot(7));
  decode_[3].load.requests = 0;
  measure(1e9);
  for (int seed = 1; seed < 20; ++seed) {
    EXPECT_NE(Select(PolicyKind::kCost, static_cast<uint64_t>(seed)).decode->slot, WorkerSlot(7));
  }
  measure(0);  // not known: as the others
  query_.transfer_bytes_per_second = 0;
  bool selected = false;
  for (int seed = 1; seed < 100; ++seed) {
    selected |=
        Select(PolicyKind::kCost, static_cast<uint64_t>(seed)).decode->slot == WorkerSlot(7);
  }
  EXPECT_TRUE(selected);
}

TEST_F(PolicyTest, CostAvoidsADecodeWorkerWithoutRoom) {
  for (int i = 0; i < 3; ++i) {
    decode_[i].load.blocks_free = 10;
    decode_[i].load.requests = 1;
  }
  decode_[3].load.requests = 20;
  EXPECT_EQ(Select(PolicyKind::kCost).decode->slot, WorkerSlot(7));
}

TEST_F(PolicyTest, PrefixAffinityFollowsTheCacheUnlessOverloaded) {
  prefill_[1].cached_tokens = 512;
  prefill_[1].load.requests = 20;
  EXPECT_EQ(Select(PolicyKind::kPrefixAffinity).prefill->slot, WorkerSlot(1));
  prefill_[1].load.requests = 40;
  EXPECT_NE(Select(PolicyKind::kPrefixAffinity).prefill->slot, WorkerSlot(1));
}

TEST_F(PolicyTest, PredictsTheTimeToFirstToken) {
  for (Candidate& p : prefill_) p.load.queued_tokens = 512;
  // The bases of the steps plus 100 ms for the prompt and 51.2 ms for the queue.
  EXPECT_NEAR(Select(PolicyKind::kCost).ttft_ms,
              2 * (1511.0 / 512) + 100 + 2 * (1023.0 / 512) + 51.2,
              0.01);
}

TEST_F(PolicyTest, AQueueIsManyPromptsAndNotALongOne) {
  for (auto& record : records_) {
    record->load.engine = {};
    record->load.engine.step_ms_per_prompt_token_context = 1e-4;
  }
  EXPECT_NEAR(Select(PolicyKind::kCost).ttft_ms, 50, 0.01);
  for (Candidate& p : prefill_) p.load.queued_tokens = 4000;
  EXPECT_NEAR(Select(PolicyKind::kCost).ttft_ms, 5 * 50, 0.01);
}

// One prefill and one decode worker. The decode worker has an ITL target of 30 ms and ten
// sequences, whose step takes 3 ms, so that 270 prompt tokens fit into a step.
class ServeAloneTest : public PolicyTest {
 protected:
  ServeAloneTest() {
    prefill_.resize(1);
    decode_.resize(1);
    records_[4]->info.itl_target = std::chrono::milliseconds(30);
    decode_[0].load.requests = 10;
  }

  Route SelectBehind(int64_t queued_tokens) {
    prefill_[0].load.queued_tokens = queued_tokens;
    return Select(PolicyKind::kCost);
  }

  static constexpr double kAloneMs = 3 * 1269.0 / 270 + 100;
};

TEST_F(ServeAloneTest, ADecodeWorkerComputesThePromptWhenTheQueueIsLong) {
  EXPECT_NE(SelectBehind(0).prefill, nullptr);
  const Route route = SelectBehind(1000);
  EXPECT_EQ(route.prefill, nullptr);
  EXPECT_EQ(route.decode->slot, WorkerSlot(4));
  EXPECT_NEAR(route.ttft_ms, kAloneMs, 0.01);
}

TEST_F(ServeAloneTest, OnlyWhenThatIsClearlyEarlier) {
  const double prefill_ms = 2 * 1511.0 / 512 + 100;
  const auto queue_for = [&](double ms) {  // queued tokens that make the TTFT `ms`
    return static_cast<int64_t>((ms - prefill_ms - 2 * 511.0 / 512) / (0.1 + 2.0 / 512));
  };
  EXPECT_NE(SelectBehind(queue_for(1.2 * kAloneMs)).prefill, nullptr);
  EXPECT_EQ(SelectBehind(queue_for(1.3 * kAloneMs)).prefill, nullptr);
}

TEST_F(ServeAloneTest, NotWithoutATarget) {
  records_[4]->info.itl_target = std::chrono::milliseconds(0);
  EXPECT_NE(SelectBehind(100'000).prefill, nullptr);
}

TEST_F(ServeAloneTest, NotWhenTheStepLeavesNoRoom) {
  decode_[0].load.requests = 260;  // step of 28 ms
  EXPECT_EQ(SelectBehind(1'000'000).prefill, nullptr);
  decode_[0].load.requests = 270;  // step of 29 ms: leaves room for less than a block
  EXPECT_NE(SelectBehind(1'000'000).prefill, nullptr);
  decode_[0].load.requests = 400;
  EXPECT_NE(SelectBehind(1'000'000).prefill, nullptr);
}

TEST_F(ServeAloneTest, NotWhileASpeedIsUnknown) {
  EngineLoad& stats = records_[4]->load.engine;
  const EngineLoad known = stats;
  stats.step_ms_base = stats.step_ms_per_token = 0;
  EXPECT_NE(SelectBehind(100'000).prefill, nullptr);
  stats = known;
  stats.step_ms_per_prompt_token = 0;
  records_[0]->load.engine.step_ms_per_prompt_token = 0;
  EXPECT_NE(SelectBehind(100'000).prefill, nullptr);
}

TEST_F(ServeAloneTest, AFirstPromptIsBelievedToTakeAsLongAsOnThePrefillWorker) {
  records_[4]->load.engine.step_ms_per_prompt_token = 0;
  const Route route = SelectBehind(1000);
  EXPECT_EQ(route.prefill, nullptr);
  EXPECT_NEAR(route.ttft_ms, kAloneMs, 0.01);
  records_[4]->load.engine.step_ms_per_prompt_token = 0.3;
  EXPECT_NE(SelectBehind(1000).prefill, nullptr) << "it is known to be slower";
}

TEST_F(ServeAloneTest, PromptsThatItHasAlreadyCount) {
  decode_[0].load.queued_tokens = 1000;
  EXPECT_NE(SelectBehind(1000).prefill, nullptr);
  const Route route = SelectBehind(5000);
  EXPECT_EQ(route.prefill, nullptr);
  EXPECT_NEAR(route.ttft_ms, 2 * kAloneMs, 0.01);
}

TEST_F(ServeAloneTest, NotWithoutRoomForItsBlocks) {
  EXPECT_EQ(SelectBehind(1000).prefill, nullptr);
  decode_[0].load.blocks_free = 10;
  query_.expected_output = 500;  // one of the ten requests ends every 155 ms
  EXPECT_NE(SelectBehind(1000).prefill, nullptr);
}

TEST_F(ServeAloneTest, WithNobodyToDisturbItTakesWholeSteps) {
  decode_[0].load.requests = 0;
  EXPECT_NEAR(SelectBehind(5000).ttft_ms, 2 * 1511.0 / 512 + 100, 0.01);
}

TEST_F(ServeAloneTest, ABurstSpreads) {
  double longest = 0;
  int alone = 0;
  for (int i = 0; i < 20; ++i) {
    const Route route = Select(PolicyKind::kCost);
    const bool taken_over = route.prefill == nullptr;
    alone += taken_over ? 1 : 0;
    (taken_over ? decode_[0] : prefill_[0]).load.queued_tokens += query_.prompt_tokens;
    ++decode_[0].load.requests;
    longest = std::max(longest, route.ttft_ms);
  }
  EXPECT_GE(alone, 6);
  EXPECT_LE(alone, 10);
  EXPECT_LT(longest, 0.7 * 20 * 106) << "of what they would take one after the other";
}

TEST_F(ServeAloneTest, OtherPoliciesDoNotCompareTimes) {
  prefill_[0].load.queued_tokens = 100'000;
  for (const PolicyKind kind : kAll) {
    if (kind == PolicyKind::kCost) continue;
    EXPECT_NE(Select(kind).prefill, nullptr) << Name(kind);
  }
}

}  // namespace
}  // namespace baton::router
