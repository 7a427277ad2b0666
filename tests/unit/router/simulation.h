#pragma once

#include <cstdint>
#include <memory>

#include <gtest/gtest.h>

#include "tests/unit/router/fake_cluster.h"

// Helpers shared by the tests that run RouterCore with fake workers.
namespace baton::router {

inline CoreOptions Options() {
  CoreOptions options;
  options.tag = uint64_t{7} << 40;
  options.suspect_after = std::chrono::milliseconds(150);
  options.lost_after = std::chrono::milliseconds(300);
  options.index_capacity = 10'000;
  return options;
}

inline std::shared_ptr<RequestSpec> Spec(uint64_t id,
                                         Time now,
                                         int32_t samples = 1,
                                         int32_t max = 40) {
  auto spec = std::make_shared<RequestSpec>();
  spec->id = RequestId(id);
  spec->prompt = std::vector<TokenId>(50 + id % 100, 1);
  spec->samples = samples;
  spec->max_tokens = max;
  spec->arrival = now;
  spec->deadline = now + std::chrono::seconds(120);
  return spec;
}

inline void AddPool(FakeCluster& cluster, int prefill, int decode) {
  for (int i = 0; i < prefill; ++i) cluster.AddWorker(fmt::format("p{}", i), true, false);
  for (int i = 0; i < decode; ++i) cluster.AddWorker(fmt::format("d{}", i), false, true);
}

inline void ExpectAllOf(const FakeCluster::Client& client) {
  const RequestSpec& spec = *client.spec;
  ASSERT_TRUE(client.outcome.has_value());
  ASSERT_TRUE(client.outcome->status.ok()) << client.outcome->status;
  for (int32_t s = 0; s < spec.samples; ++s) {
    ASSERT_EQ(static_cast<int32_t>(client.tokens[s].size()),
              TrueLength(spec.id, spec.max_tokens, s));
    for (size_t i = 0; i < client.tokens[s].size(); ++i) {
      ASSERT_EQ(client.tokens[s][i], TrueToken(spec.id, s, static_cast<int32_t>(i)));
    }
    ASSERT_EQ(client.finish[s],
              TrueFinish(spec.id, spec.max_tokens, s, TrueLength(spec.id, spec.max_tokens, s) - 1));
  }
}

inline void ExpectPrefixOf(const FakeCluster::Client& client) {
  for (int32_t s = 0; s < client.spec->samples; ++s) {
    for (size_t i = 0; i < client.tokens[s].size(); ++i) {
      ASSERT_EQ(client.tokens[s][i], TrueToken(client.spec->id, s, static_cast<int32_t>(i)));
    }
  }
}

inline void ExpectNothingLeft(FakeCluster& cluster) {
  cluster.Settle();
  EXPECT_EQ(cluster.WorkLeft(), 0u);
  EXPECT_EQ(cluster.bookings(), 0);
  EXPECT_EQ(cluster.core().Counts().running + cluster.core().Counts().waiting, 0);
}

}  // namespace baton::router
