#include <gtest/gtest.h>

#include "common/engine/sequence_masks.h"
#include "tests/fakes/engine_harness.h"
#include "tests/fakes/fake_grammar.h"
#include "tests/unit/engine/handoff_driver.h"

// Drafts of sequences whose tokens must follow a grammar (scheduler_verify.cc, sequence_mask.h).
namespace baton {
namespace {

using Tokens = std::vector<TokenId>;

constexpr size_t kLeast = 40;

FakeGrammar Grammar3() {
  return FakeGrammar(kLeast, nullptr, std::nullopt, FakeGrammar::Kind::kTwoOfThree);
}

class VerifyGrammarTest : public ::testing::Test {
 protected:
  HarnessOptions Options(int32_t drafts = 5, int32_t blocks = 200) {
    HarnessOptions options;
    options.kv.block_tokens = 4;
    options.kv.blocks = blocks;
    options.lookup_drafts = drafts;
    options.grammars = &compiler_;
    return options;
  }

  // A model of three tokens repeats itself by chance. One of them ends the output.
  static FakeExecutor::Shape Shape() { return {.vocabulary = 3, .windows = {0}}; }

  static Request Constrained(uint64_t id, int32_t max_tokens = 150) {
    Request request = MakeRequest(id, 20, id, max_tokens);
    EditTokens(request, [](Tokens& tokens) {
      for (TokenId& token : tokens) token %= 3;
    });
    request.grammar = std::to_string(kLeast) + " of 3";
    request.stop_tokens = {2};
    return request;
  }

  static void ExpectTokens(EngineHarness& harness, const Request& request) {
    const RequestLog& log = harness.log(request);
    EXPECT_TRUE(log.times.has_value()) << log.failure.value_or(OkStatus());
    const FakeGrammar grammar = Grammar3();
    const FakeGrammar* constraint = request.grammar.empty() ? nullptr : &grammar;
    for (int32_t sample = 0; sample < request.samples; ++sample) {
      EXPECT_EQ(log.Tokens(sample), harness.model().Expected(request, sample, constraint));
    }
  }

  FakeGrammarCompiler compiler_;
};

TEST_F(VerifyGrammarTest, EachTokenIsChosenAsWithoutDrafts) {
  EngineHarness harness(Options(), Shape());
  std::vector<Request> requests;
  int64_t tokens = 0;
  for (uint64_t id = 1; id <= 8; ++id) {
    Request request = Constrained(id);
    request.samples = id % 2 == 0 ? 2 : 1;
    request.sampling.temperature = id % 3 == 0 ? 1.0F : 0.0F;
    request.sampling.frequency_penalty = id % 4 == 0 ? 0.5F : 0.0F;
    harness.Submit(request);
    requests.push_back(std::move(request));
  }
  ASSERT_TRUE(harness.RunUntilIdle());
  for (const Request& request : requests) ExpectTokens(harness, request);
  const EngineStats stats = harness.engine().Stats();
  tokens = stats.output_tokens;
  EXPECT_GE(tokens, 12 * static_cast<int64_t>(kLeast));
  EXPECT_GT(stats.accepted_drafts, tokens / 20);
  EXPECT_EQ(harness.model().faults(), 0);
}

// Which of a row's masks are late makes no difference: the tokens before the first of them count.
TEST_F(VerifyGrammarTest, LateMasksChangeNoToken) {
  for (const bool state : {false, true}) {
    FakeExecutor::Shape shape = Shape();
    if (state) shape.windows = {0, 0};
    if (state) shape.state_layers = {0};
    EngineHarness harness(Options(), shape);
    const Request request = Constrained(1, 400);
    Request other = Constrained(2, 400);
    other.grammar.clear();
    other.stop_tokens.clear();
    harness.Submit(request);
    harness.Submit(other);
    for (int step = 0; harness.Step(); ++step) {
      ASSERT_LT(step, 1000);
      if (step % 3 == 1) harness.model().DelayMasks(1 + step % 4);
    }
    ExpectTokens(harness, request);
    ExpectTokens(harness, other);
    EXPECT_GT(harness.engine().Stats().accepted_drafts, 20);
    EXPECT_EQ(harness.engine().Stats().blocks_free, 200);
  }
}

// Later masks of the row are late: its first tokens are taken all the same.
TEST_F(VerifyGrammarTest, TheTokensBeforeALateMaskCount) {
  EngineHarness plain(Options(0), Shape());
  EngineHarness drafting(Options(), Shape());
  const Request request = Constrained(3);
  for (EngineHarness* harness : {&plain, &drafting}) {
    harness->Submit(request);
    // Of each row of five drafts, the third token and those after it.
    for (int step = 0; harness->Step(); ++step) {
      ASSERT_LT(step, 1000);
      harness->model().DelayMasksFrom(2);
    }
    ExpectTokens(*harness, request);
  }
  EXPECT_LT(drafting.engine().Stats().steps, plain.engine().Stats().steps);
  EXPECT_GT(drafting.engine().Stats().accepted_drafts, 5);
}

// The calls of the grammar would keep the engine's thread from the rows of others.
TEST_F(VerifyGrammarTest, SlowGrammarsHaveNoDrafts) {
  compiler_.CallsTake(2 * SequenceMasks::kLongCall);
  EngineHarness harness(Options(), Shape());
  const Request request = Constrained(1);
  harness.Submit(request);
  ASSERT_TRUE(harness.RunUntilIdle());
  ExpectTokens(harness, request);
  EXPECT_EQ(harness.engine().Stats().drafts, 0);
}

TEST_F(VerifyGrammarTest, SurvivesPreemption) {
  EngineHarness harness(Options(5, 40), Shape());
  std::vector<Request> requests;
  for (uint64_t id = 1; id <= 5; ++id) {
    requests.push_back(Constrained(id, 60));
    harness.Submit(requests.back());
  }
  ASSERT_TRUE(harness.RunUntilIdle());
  for (const Request& request : requests) ExpectTokens(harness, request);
  EXPECT_GT(harness.engine().Stats().preemptions, 0);
  EXPECT_GT(harness.engine().Stats().accepted_drafts, 10);
}

TEST_F(VerifyGrammarTest, SurvivesTheHandOffAndTheResume) {
  EngineHarness prefill(Options(), Shape());
  EngineHarness decode(Options(), Shape());
  HandoffDriver driver(prefill, decode);
  std::vector<Request> requests;
  for (uint64_t id = 1; id <= 4; ++id) {
    requests.push_back(Constrained(id));
    requests.back().samples = id % 2 == 0 ? 2 : 1;
    driver.Start(requests.back());
  }
  ASSERT_TRUE(driver.RunUntilIdle());
  const FakeGrammar grammar = Grammar3();
  for (const Request& request : requests) {
    for (int32_t i = 0; i < request.samples; ++i) {
      EXPECT_EQ(driver.Tokens(request, i), decode.model().Expected(request, i, &grammar));
    }
  }
  EXPECT_GT(decode.engine().Stats().accepted_drafts, 10);
  // Another worker goes on in the middle of an output.
  const Tokens all = decode.model().Expected(requests[0], 0, &grammar);
  for (const size_t known : {size_t{1}, size_t{17}, all.size() - 1}) {
    Request resumed = requests[0];
    resumed.id = RequestId(100 + known);
    EditTokens(resumed, [&](Tokens& tokens) {
      tokens.insert(tokens.end(), all.begin(), all.begin() + static_cast<int64_t>(known));
    });
    prefill.Submit(resumed);
    ASSERT_TRUE(prefill.RunUntilIdle());
    EXPECT_EQ(prefill.log(resumed).Tokens(0),
              Tokens(all.begin() + static_cast<int64_t>(known), all.end()));
  }
}

// Whatever ends an output ends it inside an accepted block, too, with nothing behind it.
TEST_F(VerifyGrammarTest, NothingComesBehindTheEndOfAnOutput) {
  const FakeGrammar grammar = Grammar3();
  int64_t accepted = 0;
  for (int32_t max_tokens = 30; max_tokens <= 80; ++max_tokens) {
    EngineHarness harness(Options(8), Shape());
    const Request request = Constrained(5, max_tokens);
    harness.Submit(request);
    ASSERT_TRUE(harness.RunUntilIdle());
    ExpectTokens(harness, request);
    const auto& tokens = harness.log(request).samples[0];
    const bool stopped = tokens.back().token.token == 2;
    EXPECT_EQ(tokens.back().finish, stopped ? FinishReason::kStop : FinishReason::kLength);
    for (size_t i = 0; i + 1 < tokens.size(); ++i) {
      EXPECT_EQ(tokens[i].finish, FinishReason::kNone);
    }
    EXPECT_EQ(harness.engine().Stats().output_tokens, std::ssize(tokens));
    EXPECT_EQ(harness.engine().Stats().blocks_free, 200);
    accepted += harness.engine().Stats().accepted_drafts;
  }
  EXPECT_GT(accepted, 50);
}

TEST_F(VerifyGrammarTest, RequestsMayLeaveAtAnyTime) {
  const FakeGrammar grammar = Grammar3();
  for (int at = 1; at < 60; at += 3) {
    EngineHarness harness(Options(), Shape());
    std::vector<Request> requests;
    for (uint64_t id = 1; id <= 4; ++id) {
      requests.push_back(Constrained(id));
      if (id == 2) requests.back().samples = 2;
      harness.Submit(requests.back());
    }
    for (int step = 0; step < at; ++step) harness.Step();
    harness.engine().Cancel(requests[0].id, requests[0].epoch);
    harness.StopSample(requests[1], 1);
    if (at % 2 == 0) harness.model().FailRuns(1);
    ASSERT_TRUE(harness.RunUntilIdle());
    EXPECT_EQ(harness.engine().CheckIntegrity(), OkStatus());
    EXPECT_EQ(harness.engine().Stats().blocks_free, 200);
    for (const Request& request : requests) {
      EXPECT_TRUE(harness.log(request).ended());
      const Tokens expected = harness.model().Expected(request, 0, &grammar);
      const Tokens got = harness.log(request).Tokens(0);
      ASSERT_LE(got.size(), expected.size());
      EXPECT_TRUE(std::equal(got.begin(), got.end(), expected.begin()));
    }
  }
}

// A grammar that allows no token after some output fails its request there, and only there.
TEST_F(VerifyGrammarTest, AnOutputWithoutANextTokenFailsAtThisToken) {
  for (const Status& why : {InvalidArgument("the grammar is too ambiguous"), OkStatus()}) {
    for (const size_t length : {21, 22, 23, 24}) {
      compiler_.EndAt({length, why});
      EngineHarness harness(Options(), Shape());
      const Request request = Constrained(1);
      harness.Submit(request);
      ASSERT_TRUE(harness.RunUntilIdle());
      const Status status = harness.log(request).failure.value();
      EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << status;
      EXPECT_TRUE(why.ok() || status == why) << status;
      const FakeGrammar grammar = Grammar3();
      Tokens expected = harness.model().Expected(request, 0, &grammar);
      expected.resize(length);
      EXPECT_EQ(harness.log(request).Tokens(0), expected);
      EXPECT_GT(harness.engine().Stats().accepted_drafts, 0);
      EXPECT_EQ(harness.engine().Stats().blocks_free, 200);
    }
  }
}

}  // namespace
}  // namespace baton
