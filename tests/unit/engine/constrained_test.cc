#include <numeric>
#include <vector>

#include <gtest/gtest.h>

#include "common/engine/sequence_masks.h"
#include "tests/fakes/engine_harness.h"
#include "tests/fakes/fake_grammar.h"
#include "tests/unit/engine/handoff_driver.h"

// Sequences whose tokens must follow a grammar.
namespace baton {
namespace {

HarnessOptions Options(FakeGrammarCompiler* compiler) {
  HarnessOptions options;
  options.kv.blocks = 256;
  options.kv.block_tokens = 4;
  options.max_step_tokens = 64;
  options.max_sequences = 16;
  options.grammars = compiler;
  return options;
}

Request Constrained(uint64_t id, int32_t max_tokens = 24) {
  Request request = MakeRequest(id, static_cast<int32_t>(5 + id), id, max_tokens);
  request.grammar = "9";
  for (TokenId token = 1; token < 1000; token += 7) request.stop_tokens.push_back(token);
  return request;
}

class ConstrainedTest : public ::testing::TestWithParam<bool> {
 protected:
  FakeExecutor::Shape Shape() const { return {.queues_steps = GetParam()}; }

  void ExpectTokens(EngineHarness& harness, const Request& request) {
    const FakeGrammar grammar(9);
    for (int32_t i = 0; i < request.samples; ++i) {
      EXPECT_EQ(harness.log(request).Tokens(i),
                harness.model().Expected(request, i, request.grammar.empty() ? nullptr : &grammar))
          << "sample " << i << " of request " << request.id.value();
    }
  }

  FakeGrammarCompiler compiler_;
};

TEST_P(ConstrainedTest, TokensFollowTheGrammarBesideFreeSequences) {
  EngineHarness harness(Options(&compiler_), Shape());
  std::vector<Request> requests;
  for (uint64_t id = 1; id <= 8; ++id) {
    requests.push_back(Constrained(id));
    if (id % 3 == 0) requests.back().grammar.clear();
    requests.back().samples = id % 2 == 0 ? 3 : 1;
    harness.Submit(requests.back());
  }
  ASSERT_TRUE(harness.RunUntilIdle());
  for (const Request& request : requests) ExpectTokens(harness, request);
}

TEST_P(ConstrainedTest, ALateMaskDelaysItsRowOnly) {
  EngineHarness harness(Options(&compiler_), Shape());
  const Request constrained = Constrained(1);
  Request free = MakeRequest(2, 6, 2, 12);
  harness.Submit(constrained);
  harness.Submit(free);
  ASSERT_TRUE(harness.Step());  // the prompts
  const size_t before = harness.log(constrained).Tokens(0).size();
  harness.model().DelayMasks(5);
  while (!harness.log(free).ended() && harness.log(free).Tokens(0).size() < 6) {
    ASSERT_TRUE(harness.Step());
  }
  EXPECT_LE(harness.log(constrained).Tokens(0).size(), before + 1);
  ASSERT_TRUE(harness.RunUntilIdle());
  ExpectTokens(harness, constrained);
  ExpectTokens(harness, free);
}

// The device never waits for the host between the steps of constrained sequences: only the choice
// of the tokens waits for masks.
TEST_P(ConstrainedTest, StepsAreIssuedBehindOthers) {
  EngineHarness harness(Options(&compiler_), Shape());
  std::vector<Request> requests;
  for (uint64_t id = 1; id <= 6; ++id) {
    requests.push_back(Constrained(id, 40));
    requests.back().stop_tokens = {1};
    if (id % 3 == 0) requests.back().grammar.clear();
    if (id % 2 == 0) requests.back().samples = 2;
    harness.Submit(requests.back());
  }
  ASSERT_TRUE(harness.RunUntilIdle());
  for (const Request& request : requests) ExpectTokens(harness, request);
  EXPECT_EQ(harness.model().faults(), 0);
  EXPECT_EQ(harness.model().steps_behind() >= 35, GetParam()) << harness.model().steps_behind();
}

// A row whose mask was late has no token that the step behind could compute.
TEST_P(ConstrainedTest, LateMasksBetweenQueuedStepsChangeNoToken) {
  EngineHarness harness(Options(&compiler_), Shape());
  std::vector<Request> requests;
  for (uint64_t id = 1; id <= 4; ++id) {
    requests.push_back(Constrained(id, 40));
    requests.back().stop_tokens = {1};
    if (id == 4) requests.back().grammar.clear();
    harness.Submit(requests.back());
  }
  for (int step = 0; harness.Step(); ++step) {
    ASSERT_LT(step, 400);
    if (step % 3 == 1) harness.model().DelayMasks(1 + step % 2);
  }
  for (const Request& request : requests) {
    EXPECT_TRUE(harness.log(request).ended());
    ExpectTokens(harness, request);
  }
  EXPECT_EQ(harness.model().faults(), 0);
}

// A step behind waits for its masks, and the rows of others with it.
TEST_P(ConstrainedTest, StepsOfSlowGrammarsAreNotIssuedBehindOthers) {
  compiler_.CallsTake(2 * SequenceMasks::kLongCall);
  EngineHarness harness(Options(&compiler_), Shape());
  const Request request = Constrained(1, 20);
  harness.Submit(request);
  ASSERT_TRUE(harness.RunUntilIdle());
  ExpectTokens(harness, request);
  EXPECT_EQ(harness.model().steps_behind(), 0);
}

TEST_P(ConstrainedTest, ARequestMayLeaveBetweenAStepAndItsSampling) {
  EngineHarness harness(Options(&compiler_), Shape());
  std::vector<Request> requests;
  for (uint64_t id = 1; id <= 5; ++id) {
    requests.push_back(Constrained(id, 40));
    requests.back().stop_tokens = {1};
    harness.Submit(requests.back());
  }
  for (int step = 0; step < 20; ++step) {
    ASSERT_TRUE(harness.Step());
    if (step == 8) harness.engine().Cancel(requests[1].id, requests[1].epoch);
    if (step == 12) harness.model().FailRuns(1);
    if (step == 13) break;
  }
  ASSERT_TRUE(harness.RunUntilIdle());
  EXPECT_EQ(harness.engine().Stats().blocks_leaked, 0);
  EXPECT_EQ(harness.engine().CheckIntegrity(), OkStatus());
  for (const Request& request : requests) EXPECT_TRUE(harness.log(request).ended());
}

// Until its first mask is computed, a request takes no part in steps, also when it is resumed.
TEST_P(ConstrainedTest, ALateFirstMaskDelaysItsRequestOnly) {
  EngineHarness harness(Options(&compiler_), Shape());
  const FakeGrammar grammar(9);
  const Request whole = Constrained(1);
  Request resumed = Constrained(3);
  resumed.prompt_length = static_cast<int32_t>(resumed.tokens.size());
  EditTokens(resumed, [&](std::vector<TokenId>& tokens) {
    tokens.push_back(harness.model().Expected(resumed, 0, &grammar)[0]);
  });
  const Request free = MakeRequest(2, 6, 2, 12);
  compiler_.masks().Hold();
  for (const Request& request : {whole, resumed, free}) harness.Submit(request);
  for (int i = 0; i < 100 && !harness.log(free).ended(); ++i) harness.engine().Step();
  EXPECT_TRUE(harness.log(free).ended());
  EXPECT_FALSE(harness.log(whole).begun());
  EXPECT_FALSE(harness.log(resumed).begun());
  compiler_.masks().Release();
  ASSERT_TRUE(harness.RunUntilIdle());
  ExpectTokens(harness, whole);
  ExpectTokens(harness, free);
  EXPECT_FALSE(harness.log(resumed).Tokens(0).empty());
}

TEST_P(ConstrainedTest, GrammarsAreCompiledForTheClientsOfTheirRequests) {
  EngineHarness harness(Options(&compiler_), Shape());
  Request first = Constrained(1);
  first.client_tag = 77;
  Request second = Constrained(2);
  second.client_tag = 5;
  harness.Submit(first);
  harness.Submit(second);
  ASSERT_TRUE(harness.RunUntilIdle());
  EXPECT_EQ(compiler_.clients(), std::vector<uint64_t>({77, 5}));
}

TEST_P(ConstrainedTest, SurvivesPreemption) {
  HarnessOptions options = Options(&compiler_);
  options.kv.blocks = 14;
  EngineHarness harness(options, Shape());
  std::vector<Request> requests;
  for (uint64_t id = 1; id <= 4; ++id) {
    requests.push_back(Constrained(id));
    requests.back().grammar = "20";
    harness.Submit(requests.back());
  }
  ASSERT_TRUE(harness.RunUntilIdle());
  const FakeGrammar grammar(20);
  for (const Request& request : requests) {
    EXPECT_EQ(harness.log(request).Tokens(0), harness.model().Expected(request, 0, &grammar));
  }
  EXPECT_GT(harness.engine().Stats().preemptions, 0);
}

TEST_P(ConstrainedTest, SurvivesTheHandOff) {
  EngineHarness prefill(Options(&compiler_), Shape());
  EngineHarness decode(Options(&compiler_), Shape());
  HandoffDriver driver(prefill, decode);
  std::vector<Request> requests;
  for (uint64_t id = 1; id <= 4; ++id) {
    requests.push_back(Constrained(id));
    requests.back().samples = id % 2 == 0 ? 2 : 1;
    driver.Start(requests.back());
  }
  ASSERT_TRUE(driver.RunUntilIdle());
  const FakeGrammar grammar(9);
  for (const Request& request : requests) {
    for (int32_t i = 0; i < request.samples; ++i) {
      EXPECT_EQ(driver.Tokens(request, i), decode.model().Expected(request, i, &grammar));
    }
  }
}

TEST_P(ConstrainedTest, ResumesInTheMiddleOfTheOutput) {
  EngineHarness harness(Options(&compiler_), Shape());
  const Request whole = Constrained(3);
  const FakeGrammar grammar(9);
  const std::vector<TokenId> all = harness.model().Expected(whole, 0, &grammar);
  for (size_t known = 1; known < all.size(); known += 3) {
    Request resumed = whole;
    resumed.id = RequestId(100 + known);
    EditTokens(resumed, [&](std::vector<TokenId>& tokens) {
      tokens.insert(tokens.end(), all.begin(), all.begin() + static_cast<int64_t>(known));
    });
    harness.Submit(resumed);
    ASSERT_TRUE(harness.RunUntilIdle());
    const std::vector<TokenId> rest(all.begin() + static_cast<int64_t>(known), all.end());
    EXPECT_EQ(harness.log(resumed).Tokens(0), rest) << known;
  }
}

// A router dispatches a request again with an output that its grammar does not allow.
TEST_P(ConstrainedTest, ATokenAgainstTheGrammarFailsItsRequest) {
  EngineHarness harness(Options(&compiler_), Shape());
  Request resumed = Constrained(3);
  EditTokens(resumed, [](std::vector<TokenId>& tokens) { tokens.push_back(2); });
  harness.Submit(resumed);
  ASSERT_TRUE(harness.RunUntilIdle());
  EXPECT_TRUE(harness.log(resumed).failure.has_value());
  EXPECT_TRUE(harness.log(resumed).Tokens(0).empty());
}

// Where a grammar allows no token, the request fails by its own fault and by itself: no worker is
// to try it again, no step fails, and the KV of its prompt is good.
TEST_P(ConstrainedTest, AnOutputThatItsGrammarCannotContinueFailsByItself) {
  const Status ambiguous = InvalidArgument("the grammar is too ambiguous");
  for (const Status& failure : {ambiguous, OkStatus()}) {
    for (const size_t length : {0, 3}) {
      EngineHarness harness(Options(&compiler_), Shape());
      compiler_.EndAt({length, failure});
      const Request bad = Constrained(1);
      const Request free = MakeRequest(2, 6, 2, 12);
      harness.Submit(bad);
      harness.Submit(free);
      ASSERT_TRUE(harness.RunUntilIdle());
      const Status status = harness.log(bad).failure.value();
      EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << status;
      EXPECT_TRUE(failure.ok() || status == failure) << status;
      EXPECT_EQ(harness.log(bad).Tokens(0).size(), length);
      ExpectTokens(harness, free);
      EXPECT_EQ(harness.engine().Stats().failed_steps, 0);
      EXPECT_EQ(harness.engine().Stats().blocks_cached, length > 0 ? 6 : 4);
    }
  }
}

TEST_P(ConstrainedTest, ARequestWithoutAFirstTokenTakesPartInNoStep) {
  EngineHarness harness(Options(&compiler_), Shape());
  compiler_.EndAt({0, InvalidArgument("the grammar is too ambiguous")});
  const Request request = Constrained(1);
  harness.Submit(request);
  ASSERT_TRUE(harness.RunUntilIdle());
  EXPECT_TRUE(harness.log(request).failure.has_value());
  EXPECT_EQ(harness.engine().Stats().steps, 0);
}

TEST_P(ConstrainedTest, ARequestWaitsAloneForItsGrammar) {
  EngineHarness harness(Options(&compiler_), Shape());
  compiler_.Hold();
  const Request waits = Constrained(1);
  Request cancelled = Constrained(2);
  Request late = Constrained(4);
  late.deadline = harness.clock().Now() + std::chrono::milliseconds(5);
  const Request free = MakeRequest(5, 6, 2, 30);
  for (const Request& request : {waits, cancelled, late, free}) harness.Submit(request);
  harness.Step();
  harness.engine().Cancel(cancelled.id, cancelled.epoch);
  while (!harness.log(free).ended()) ASSERT_TRUE(harness.Step());
  EXPECT_EQ(harness.log(cancelled).failure.value().code(), StatusCode::kCancelled);
  EXPECT_EQ(harness.log(late).failure.value().code(), StatusCode::kDeadlineExceeded);
  EXPECT_TRUE(compiler_.wanted(0));
  EXPECT_FALSE(compiler_.wanted(1)) << "cancelled";
  EXPECT_FALSE(compiler_.wanted(2)) << "late";
  EXPECT_FALSE(harness.log(waits).begun());
  EXPECT_EQ(harness.engine().Stats().waiting, 1);
  EXPECT_FALSE(harness.engine().WaitUntilIdle(std::chrono::milliseconds(1)));
  compiler_.Release();
  ASSERT_TRUE(harness.RunUntilIdle());
  ExpectTokens(harness, waits);
  ExpectTokens(harness, free);
}

TEST_P(ConstrainedTest, SamplesThatAreStoppedMeanwhileDoNotBegin) {
  EngineHarness harness(Options(&compiler_), Shape());
  compiler_.Hold();
  Request request = Constrained(2);
  request.samples = 2;
  harness.Submit(request);
  harness.Step();
  harness.StopSample(request, 1);
  harness.Step();
  compiler_.Release();
  ASSERT_TRUE(harness.RunUntilIdle());
  EXPECT_TRUE(harness.log(request).Tokens(1).empty());
  EXPECT_FALSE(harness.log(request).Tokens(0).empty());
}

TEST_P(ConstrainedTest, AGrammarThatDoesNotCompileFailsItsRequest) {
  EngineHarness harness(Options(&compiler_), Shape());
  Request bad = Constrained(1);
  bad.grammar = "bad";
  harness.Submit(bad);
  ASSERT_TRUE(harness.RunUntilIdle());
  EXPECT_EQ(harness.log(bad).failure.value(), InvalidArgument("the grammar is bad"));
}

TEST_P(ConstrainedTest, AnEngineWithoutACompilerRefuses) {
  EngineHarness harness(Options(nullptr), Shape());
  const Request request = Constrained(1);
  harness.Submit(request);
  ASSERT_TRUE(harness.RunUntilIdle());
  EXPECT_EQ(harness.log(request).failure.value().code(), StatusCode::kUnimplemented);
}

TEST_P(ConstrainedTest, NeedsAStopTokenAndNoMinTokens) {
  EngineHarness harness(Options(&compiler_), Shape());
  Request endless = Constrained(1);
  endless.stop_tokens.clear();
  Request least = Constrained(2);
  least.min_tokens = 2;
  harness.Submit(endless);
  harness.Submit(least);
  ASSERT_TRUE(harness.RunUntilIdle());
  EXPECT_EQ(harness.log(endless).failure.value().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(harness.log(least).failure.value().code(), StatusCode::kInvalidArgument);
}

INSTANTIATE_TEST_SUITE_P(WithAndWithoutQueue, ConstrainedTest, ::testing::Bool());

}  // namespace
}  // namespace baton
