#include <algorithm>

#include <gtest/gtest.h>

#include "tests/fakes/engine_harness.h"
#include "tests/unit/engine/handoff_driver.h"

// Engine::StopSample: one sample of several ends early, and the others are not affected.
namespace baton {
namespace {

HarnessOptions Options(int32_t blocks = 32) {
  HarnessOptions options;
  options.kv.blocks = blocks;
  options.kv.block_tokens = 4;
  options.max_step_tokens = 16;
  options.max_sequences = 8;
  return options;
}

Request Samples(int32_t samples, int32_t length, int32_t max_tokens) {
  Request request = MakeRequest(1, length, 6, max_tokens);
  request.samples = samples;
  return request;
}

void ExpectPrefix(const std::vector<TokenId>& found, const std::vector<TokenId>& all) {
  ASSERT_LE(found.size(), all.size());
  EXPECT_TRUE(std::equal(found.begin(), found.end(), all.begin()));
}

TEST(StopSample, TheOthersGoOnWheneverAndWhicheverItIs) {
  for (int point = 0; point < 12; ++point) {
    for (int32_t stopped = 0; stopped < 3; ++stopped) {
      EngineHarness harness(Options());
      const Request request = Samples(3, 37, 12);
      harness.Submit(request);
      for (int i = 0; i < point; ++i) harness.Step();
      const auto before = static_cast<int64_t>(harness.log(request).Tokens(stopped).size());
      harness.StopSample(request, stopped);
      ASSERT_TRUE(harness.RunUntilIdle());
      const RequestLog& log = harness.log(request);
      EXPECT_TRUE(log.times.has_value()) << "the request did not finish";
      for (int32_t sample = 0; sample < 3; ++sample) {
        const std::vector<TokenId> all = harness.model().Expected(request, sample);
        if (sample != stopped) {
          EXPECT_EQ(log.Tokens(sample), all);
          continue;
        }
        ExpectPrefix(log.Tokens(sample), all);
        EXPECT_EQ(std::ssize(log.Tokens(sample)), before) << "computed after the stop";
      }
      EXPECT_EQ(harness.engine().Stats().blocks_free, 32);
    }
  }
}

TEST(StopSample, TheLastToBeStoppedEndsTheRequest) {
  EngineHarness harness(Options());
  const Request request = Samples(2, 10, 60);
  harness.Submit(request);
  for (int i = 0; i < 5; ++i) harness.Step();
  harness.StopSample(request, 0);
  harness.Step();
  EXPECT_FALSE(harness.log(request).ended());
  harness.StopSample(request, 0);
  harness.Step();
  EXPECT_FALSE(harness.log(request).ended()) << "a second stop of the same sample counted";
  harness.StopSample(request, 1);
  harness.Step();
  EXPECT_TRUE(harness.log(request).times.has_value());
  EXPECT_EQ(harness.engine().Stats().blocks_free, 32);
}

TEST(StopSample, WhatIsNotThereIsIgnored) {
  EngineHarness harness(Options());
  Request request = Samples(2, 10, 8);
  request.first_sample = 3;
  harness.Submit(request);
  for (int i = 0; i < 3; ++i) harness.Step();
  for (const int32_t sample : {-1, 0, 1, 2, 5, INT32_MAX, INT32_MIN}) {
    harness.StopSample(request, sample);
  }
  harness.engine().StopSample(request.id, Epoch(9), 3);
  harness.engine().StopSample(RequestId(9), request.epoch, 3);
  ASSERT_TRUE(harness.RunUntilIdle());
  for (int32_t sample : {3, 4}) {
    EXPECT_EQ(harness.log(request).samples[sample].size(), 8u);
  }
}

TEST(StopSample, APreemptedOneGivesUpItsPlaceInTheQueue) {
  EngineHarness harness(Options(12));
  const Request request = Samples(4, 8, 32);  // needs 4 · 10 blocks at the end; the arena has 12
  harness.Submit(request);
  while (harness.engine().Stats().preemptions == 0) ASSERT_TRUE(harness.Step());
  for (const int32_t sample : {1, 2, 3}) {
    harness.StopSample(request, sample);
  }
  harness.Step();
  EXPECT_EQ(harness.engine().Stats().waiting, 0);
  ASSERT_TRUE(harness.RunUntilIdle());
  EXPECT_EQ(harness.log(request).Tokens(0), harness.model().Expected(request, 0));
  EXPECT_EQ(harness.engine().Stats().blocks_free, 12);
}

TEST(StopSample, BeforeTheKvHasCome) {
  for (const int32_t stopped : {0, 1, 2}) {
    EngineHarness prefill(Options());
    EngineHarness decode(Options());
    HandoffDriver driver(prefill, decode);
    const Request request = Samples(3, 14, 9);
    driver.Start(request);
    decode.StopSample(request, stopped);
    ASSERT_TRUE(driver.RunUntilIdle());
    EXPECT_TRUE(decode.log(request).times.has_value());
    for (int32_t sample = 0; sample < 3; ++sample) {
      const std::vector<TokenId> all = prefill.model().Expected(request, sample);
      if (sample != stopped) {
        EXPECT_EQ(driver.Tokens(request, sample), all);
      } else {
        EXPECT_EQ(driver.Tokens(request, sample), std::vector(all.begin(), all.begin() + 1));
      }
    }
    EXPECT_EQ(decode.engine().Stats().blocks_free, 32);
  }
}

}  // namespace
}  // namespace baton
