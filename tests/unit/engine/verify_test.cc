#include <algorithm>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "common/engine/lookup_drafter.h"
#include "tests/fakes/engine_harness.h"

// Tokens that are guessed and verified (scheduler_verify.cc). Those of constrained sequences:
// verify_grammar_test.cc.
namespace baton {
namespace {

using Tokens = std::vector<TokenId>;

Tokens Drafts(LookupDrafter& drafter, const Tokens& tokens, int32_t limit) {
  const auto drafts = drafter.Draft(tokens, limit);
  return {drafts.begin(), drafts.end()};
}

TEST(LookupDrafterTest, RepeatsWhatFollowedTheLastTime) {
  LookupDrafter drafter(9);
  Tokens tokens = {7, 1, 2, 3, 4, 5, 1, 2};
  EXPECT_EQ(Drafts(drafter, tokens, 4), Tokens());
  tokens.push_back(3);
  EXPECT_EQ(Drafts(drafter, tokens, 4), (Tokens{4, 5, 1, 2}));
  EXPECT_EQ(Drafts(drafter, tokens, 9), (Tokens{4, 5, 1, 2, 3}));
  EXPECT_EQ(Drafts(drafter, tokens, 0), Tokens());
  tokens.insert(tokens.end(), {9, 1, 2, 3});
  EXPECT_EQ(Drafts(drafter, tokens, 2), (Tokens{9, 1})) << "the last time, not the first";
}

TEST(LookupDrafterTest, ShortSequencesHaveNone) {
  LookupDrafter drafter(9);
  EXPECT_EQ(Drafts(drafter, {}, 4), Tokens());
  EXPECT_EQ(Drafts(drafter, {1, 1}, 4), Tokens());
  EXPECT_EQ(Drafts(drafter, {1, 1, 1}, 4), Tokens());
  EXPECT_EQ(Drafts(drafter, {1, 1, 1, 1}, 4), (Tokens{1}));
}

// The lengths of the guesses that a drafter makes for `tokens`, when each guess is verified and its
// right tokens are taken.
std::vector<size_t> Guesses(LookupDrafter& drafter, const Tokens& tokens) {
  std::vector<size_t> lengths;
  for (size_t at = 0; at < tokens.size();) {
    const auto [known, next] =
        std::pair(std::span(tokens).first(at), std::span(tokens).subspan(at));
    const auto guess = drafter.Draft(known, 100);
    if (!guess.empty()) lengths.push_back(guess.size());
    const auto right = std::ranges::mismatch(guess, next).in1 - guess.begin();
    at += std::min(static_cast<size_t>(right) + 1, next.size());
  }
  return lengths;
}

TEST(LookupDrafterTest, EachRightTokenAddsOneAndEachWrongOneTakesOne) {
  LookupDrafter drafter(5);
  EXPECT_EQ(Guesses(drafter, {1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3, 4, 5, 20, 21, 22, 1, 2, 3, 4}),
            std::vector<size_t>({5, 4}));
}

TEST(LookupDrafterTest, MakesNoGuessesWhereTheyAreWrong) {
  Tokens tokens;
  for (TokenId i = 0; i < 6; ++i) {
    for (const TokenId token : {1, 2, 3}) tokens.push_back(token);
    for (TokenId other = 0; other < 6; ++other) tokens.push_back(10 + 6 * i + other);
  }
  LookupDrafter drafter(5);
  EXPECT_EQ(Guesses(drafter, tokens), std::vector<size_t>{5});
}

TEST(LookupDrafterTest, MakesGuessesAgainWhereTheyWouldBeRight) {
  Tokens tokens = {1, 2, 3, 10, 11, 12, 13, 14, 1, 2, 3};
  for (int i = 0; i < 4; ++i) tokens.insert(tokens.end(), {20, 21, 22, 23, 24, 25, 26, 27});
  LookupDrafter drafter(5);
  EXPECT_EQ(Guesses(drafter, tokens), std::vector<size_t>({5, 1, 2, 4, 5, 5}));
}

constexpr int32_t kBlockTokens = 4;

// A model of three tokens repeats itself by chance, so that some drafts are right.
FakeExecutor::Shape Shape(std::vector<KvWindow> windows = {0}) {
  return {.vocabulary = 3, .windows = std::move(windows)};
}

HarnessOptions Options(int32_t drafts, int32_t blocks = 200) {
  HarnessOptions options;
  options.kv.block_tokens = kBlockTokens;
  options.kv.blocks = blocks;
  options.lookup_drafts = drafts;
  return options;
}

Request Repetitive(uint64_t id, int32_t max_tokens, int32_t samples = 1) {
  Request request = MakeRequest(id, 20, id, max_tokens);
  request.samples = samples;
  EditTokens(request, [](Tokens& tokens) {
    for (TokenId& token : tokens) token %= 3;
  });
  return request;
}

void ExpectTokens(EngineHarness& harness, const Request& request) {
  const RequestLog& log = harness.log(request);
  EXPECT_TRUE(log.times.has_value()) << log.failure.value_or(OkStatus());
  for (int32_t sample = 0; sample < request.samples; ++sample) {
    EXPECT_EQ(log.Tokens(sample), harness.model().Expected(request, sample)) << sample;
  }
}

int64_t StepsFor(const HarnessOptions& options, const Request& request) {
  EngineHarness harness(options, Shape());
  harness.Submit(request);
  EXPECT_TRUE(harness.RunUntilIdle());
  ExpectTokens(harness, request);
  const EngineStats stats = harness.engine().Stats();
  EXPECT_EQ(stats.output_tokens, request.max_tokens);
  EXPECT_EQ(stats.steps + stats.accepted_drafts, request.max_tokens);
  return stats.steps;
}

TEST(VerifyTest, RightDraftsSaveStepsAndChangeNoToken) {
  const Request request = Repetitive(1, 200);
  const int64_t plain = StepsFor(Options(0), request);
  EXPECT_EQ(plain, 200);
  EXPECT_LT(StepsFor(Options(1), request), 190);
  EXPECT_LT(StepsFor(Options(8), request), 185);
}

// Penalties of a token count the drafts before it.
TEST(VerifyTest, EachTokenIsChosenAsWithoutDrafts) {
  for (const bool sampled : {false, true}) {
    EngineHarness harness(Options(4), Shape());
    Request request = Repetitive(2, 120, 3);
    request.sampling.temperature = sampled ? 1.0F : 0.0F;
    request.sampling.frequency_penalty = 0.5F;
    request.sampling.top_logprobs = 2;
    request.min_tokens = 60;
    request.stop_tokens = {2};
    harness.Submit(request);
    ASSERT_TRUE(harness.RunUntilIdle());
    ExpectTokens(harness, request);
    EXPECT_GT(harness.engine().Stats().accepted_drafts, 0);
  }
}

// The windows slide by the tokens that are taken, not by those that are guessed.
TEST(VerifyTest, WindowsKeepWhatARejectedDraftLeaves) {
  for (const int32_t window : {2, 5, 13}) {
    EngineHarness harness(Options(8), Shape({0, window}));
    const Request request = Repetitive(3, 150);
    harness.Submit(request);
    ASSERT_TRUE(harness.RunUntilIdle());
    ExpectTokens(harness, request);
    EXPECT_GT(harness.engine().Stats().accepted_drafts, 10);
  }
}

TEST(VerifyTest, AStateGoesBackToThatBeforeTheRow) {
  FakeExecutor::Shape shape = Shape({0, 0});
  shape.state_layers = {0};
  EngineHarness harness(Options(4), shape);
  const Request request = Repetitive(4, 150, 2);
  harness.Submit(request);
  ASSERT_TRUE(harness.RunUntilIdle());
  ExpectTokens(harness, request);
  EXPECT_GT(harness.engine().Stats().accepted_drafts, 10);
  EXPECT_EQ(harness.engine().Stats().blocks_free, 200);
}

// A tiny arena: sequences are preempted and computed again, and drafts take no block from others.
TEST(VerifyTest, DraftsTakeNoBlocksFromOthers) {
  for (const auto admission :
       {AdmissionPolicy::kMaxUtilization, AdmissionPolicy::kGuaranteedNoEvict}) {
    HarnessOptions options = Options(8, 24);
    options.admission = admission;
    EngineHarness harness(options, Shape());
    std::vector<Request> requests;
    for (uint64_t id = 1; id <= 6; ++id) {
      requests.push_back(Repetitive(id, 40));
      harness.Submit(requests.back());
    }
    ASSERT_TRUE(harness.RunUntilIdle());
    for (const Request& request : requests) ExpectTokens(harness, request);
    EXPECT_GT(harness.engine().Stats().accepted_drafts, 10);
    if (admission == AdmissionPolicy::kGuaranteedNoEvict) {
      EXPECT_EQ(harness.engine().Stats().preemptions, 0);
    }
  }
}

// On a device that queues steps, none is planned ahead: drafts follow known tokens.
TEST(VerifyTest, NoStepIsPlannedAhead) {
  FakeExecutor::Shape shape = Shape();
  shape.queues_steps = true;
  EngineHarness harness(Options(4), shape);
  const Request request = Repetitive(5, 150);
  harness.Submit(request);
  ASSERT_TRUE(harness.RunUntilIdle());
  ExpectTokens(harness, request);
  EXPECT_GT(harness.engine().Stats().accepted_drafts, 10);
  EXPECT_EQ(harness.model().steps_behind(), 0);
}

}  // namespace
}  // namespace baton
