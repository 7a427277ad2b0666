#include "common/engine/engine.h"

#include <gtest/gtest.h>

#include "tests/fakes/engine_harness.h"

namespace baton {
namespace {

HarnessOptions SmallOptions() {
  HarnessOptions options;
  options.kv.blocks = 64;
  options.max_step_tokens = 64;
  options.max_sequences = 16;
  return options;
}

TEST(EngineTest, ServesOneRequest) {
  EngineHarness harness(SmallOptions());
  const Request request = MakeRequest(1, 40, 7, 12);
  harness.Submit(request);
  ASSERT_TRUE(harness.RunUntilIdle());
  EXPECT_TRUE(harness.log(request).times.has_value());
  EXPECT_EQ(harness.log(request).Tokens(0), harness.model().Expected(request, 0));
  EXPECT_EQ(harness.log(request).samples[0].back().finish, FinishReason::kLength);
}

TEST(EngineTest, SameTokensAtEveryChunkSize) {
  const Request request = MakeRequest(1, 50, 11, 9);
  for (int32_t chunk = 1; chunk <= 51; ++chunk) {
    HarnessOptions options = SmallOptions();
    options.max_step_tokens = chunk;
    EngineHarness harness(options);
    harness.Submit(request);
    ASSERT_TRUE(harness.RunUntilIdle());
    ASSERT_EQ(harness.log(request).Tokens(0), harness.model().Expected(request, 0)) << chunk;
    EXPECT_LE(harness.model().max_step_rows(), chunk);
  }
}

TEST(EngineTest, SamplesShareThePromptAndDiffer) {
  EngineHarness harness(SmallOptions());
  Request request = MakeRequest(1, 40, 7, 20);
  request.samples = 4;
  harness.Submit(request);
  ASSERT_TRUE(harness.RunUntilIdle());
  for (int32_t i = 0; i < 4; ++i) {
    EXPECT_EQ(harness.log(request).Tokens(i), harness.model().Expected(request, i)) << i;
  }
  EXPECT_NE(harness.log(request).Tokens(0), harness.log(request).Tokens(1));
  EXPECT_EQ(harness.engine().Stats().prompt_tokens, 40);
  EXPECT_EQ(harness.model().copies(), 3);
}

TEST(EngineTest, SecondPromptIsFoundInTheCache) {
  EngineHarness harness(SmallOptions());
  const Request first = MakeRequest(1, 48, 7, 4);
  Request second = first;
  second.id = RequestId(2);
  harness.Submit(first);
  ASSERT_TRUE(harness.RunUntilIdle());
  harness.Submit(second);
  ASSERT_TRUE(harness.RunUntilIdle());
  // 48 tokens are three blocks, but the last token must be computed for its logits.
  EXPECT_EQ(harness.log(second).times->cached_tokens, 32);
  // The first token tells, so that a stream begins with it.
  EXPECT_EQ(harness.log(second).samples.at(0)[0].cached_tokens, 32);
  EXPECT_EQ(harness.log(second).samples.at(0)[1].cached_tokens, 0);
  EXPECT_EQ(harness.log(second).Tokens(0), harness.log(first).Tokens(0));
}

}  // namespace
}  // namespace baton
