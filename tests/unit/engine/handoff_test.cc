#include <gtest/gtest.h>

#include "tests/fakes/engine_harness.h"
#include "tests/unit/engine/handoff_driver.h"

namespace baton {
namespace {

HarnessOptions Options() {
  HarnessOptions options;
  options.kv.blocks = 128;
  options.kv.block_tokens = 4;
  options.max_step_tokens = 32;
  options.max_sequences = 16;
  return options;
}

TEST(HandoffTest, SameTokensAtEveryPromptLengthAndChunkSize) {
  for (int32_t length = 1; length <= 18; ++length) {
    for (int32_t chunk : {1, 2, 3, 4, 5, 7, 8, 9, 16, 32}) {
      HarnessOptions options = Options();
      options.max_step_tokens = chunk;
      EngineHarness prefill(options);
      EngineHarness decode(Options());
      HandoffDriver driver(prefill, decode);
      const Request request = MakeRequest(1, length, length * 31 + 1, 7);
      driver.Start(request);
      ASSERT_TRUE(driver.RunUntilIdle());
      ASSERT_EQ(driver.Tokens(request, 0), prefill.model().Expected(request, 0))
          << length << " tokens by " << chunk;
      EXPECT_EQ(prefill.log(request).samples[0].back().finish, FinishReason::kHandedOff);
      EXPECT_EQ(decode.log(request).samples[0].back().finish, FinishReason::kLength);
    }
  }
}

TEST(HandoffTest, SamplesAndResumesGiveTheSameTokens) {
  EngineHarness prefill(Options());
  EngineHarness decode(Options());
  HandoffDriver driver(prefill, decode);
  Request request = MakeRequest(1, 13, 77, 9);
  request.samples = 3;
  driver.Start(request);
  ASSERT_TRUE(driver.RunUntilIdle());
  for (int32_t sample = 0; sample < 3; ++sample) {
    const std::vector<TokenId> all = driver.Tokens(request, sample);
    ASSERT_EQ(all, prefill.model().Expected(request, sample));
    // Another pair of workers can resume the request at any index.
    for (size_t done = 1; done < all.size(); ++done) {
      Request resumed = request;
      resumed.id = RequestId(100 + 10 * sample + done);
      resumed.epoch = Epoch(1);
      resumed.samples = 1;
      resumed.first_sample = sample;
      resumed.tokens = resumed.tokens.Plus(std::span(all).first(done));
      driver.Start(resumed);
      ASSERT_TRUE(driver.RunUntilIdle());
      ASSERT_EQ(driver.Tokens(resumed, sample), std::vector(all.begin() + done, all.end()));
      resumed.epoch = Epoch(2);
      decode.Submit(resumed);
      ASSERT_TRUE(decode.RunUntilIdle());
      ASSERT_EQ(decode.log(resumed).Tokens(sample), std::vector(all.begin() + done, all.end()));
    }
  }
}

TEST(HandoffTest, OnlyBlocksThatDecodeLacksAreSent) {
  // Blocks are cached also when the request ends with the token that arrived with them.
  for (const int32_t max_tokens : {1, 5}) {
    EngineHarness prefill(Options());
    EngineHarness decode(Options());
    HandoffDriver driver(prefill, decode);
    const Request first = MakeRequest(1, 16, 5, max_tokens);
    driver.Start(first);
    ASSERT_TRUE(driver.RunUntilIdle());
    EXPECT_EQ(driver.blocks_copied(), 4);
    Request second = first;
    second.id = RequestId(2);
    EditTokens(second, [](std::vector<TokenId>& tokens) { tokens.resize(18, 3); });
    second.prompt_length = 18;
    driver.Start(second);
    ASSERT_TRUE(driver.RunUntilIdle());
    EXPECT_EQ(driver.blocks_copied(), 5);
    EXPECT_EQ(decode.log(second).reservation->cached_blocks, 4);
    EXPECT_EQ(driver.Tokens(second, 0), prefill.model().Expected(second, 0));
    EXPECT_EQ(prefill.log(second).times->cached_tokens, 16);
  }
}

// Layers with a window of 10 tokens: token 40 reads the tokens from 31 on, which are in 3 blocks.
class WindowHandoffTest : public testing::Test {
 protected:
  static constexpr int32_t kAll = 10;  // blocks of the prompt
  static constexpr int32_t kInWindow = 3;

  static int32_t Used(EngineHarness& harness) {
    const EngineStats stats = harness.engine().Stats();
    return stats.blocks_total - stats.blocks_free;
  }

  const FakeExecutor::Shape shape_ = {.windows = {0, 10}};
  EngineHarness prefill_{Options(), shape_};
  EngineHarness decode_{Options(), shape_};
  Request request_ = MakeRequest(1, 40, 5, 30);
};

TEST_F(WindowHandoffTest, OnlyWhatTheNextTokenReadsIsSent) {
  HandoffDriver driver(prefill_, decode_);
  driver.Start(request_);
  ASSERT_TRUE(driver.RunUntilIdle());
  EXPECT_EQ(driver.blocks_copied(), kAll + kInWindow);
  EXPECT_EQ(driver.Tokens(request_, 0), prefill_.model().Expected(request_, 0));
  // The next hand-off of this prompt finds all of its blocks at the decode worker.
  request_.id = RequestId(2);
  driver.Start(request_);
  ASSERT_TRUE(driver.RunUntilIdle());
  EXPECT_EQ(driver.blocks_copied(), kAll + kInWindow);
  EXPECT_EQ(decode_.log(request_).reservation->cached_blocks, kAll);
  EXPECT_EQ(driver.Tokens(request_, 0), prefill_.model().Expected(request_, 0));
}

TEST_F(WindowHandoffTest, BothEndsHoldNoMoreThanIsSent) {
  request_.kind = RequestKind::kDecode;
  decode_.Submit(request_);
  ASSERT_TRUE(decode_.RunUntilIdle());
  ASSERT_TRUE(decode_.log(request_).reservation);
  EXPECT_EQ(decode_.log(request_).reservation->blocks.size(), size_t{2} * kAll);
  EXPECT_EQ(Used(decode_), kAll + kInWindow);
  request_.kind = RequestKind::kPrefill;
  prefill_.Submit(request_);
  ASSERT_TRUE(prefill_.RunUntilIdle());
  ASSERT_TRUE(prefill_.log(request_).ended());
  EXPECT_EQ(Used(prefill_), kAll + kInWindow);
  for (EngineHarness* harness : {&prefill_, &decode_}) {
    harness->engine().Cancel(request_.id, request_.epoch);
    harness->engine().ReleaseKv(request_.id, request_.epoch);
    harness->RunUntilIdle();
    EXPECT_EQ(Used(*harness), 0);
  }
}

// A decode worker grants a prompt whose windows fit although its blocks would not.
TEST_F(WindowHandoffTest, ALongPromptNeedsTheRoomOfItsWindows) {
  HarnessOptions small = Options();
  small.kv.blocks = 48;
  EngineHarness decode(small, shape_);
  request_ = MakeRequest(1, 120, 5, 30);
  EXPECT_GT(2 * 120 / 4, small.kv.blocks);
  HandoffDriver driver(prefill_, decode);
  driver.Start(request_);
  ASSERT_TRUE(driver.RunUntilIdle());
  EXPECT_EQ(driver.Tokens(request_, 0), prefill_.model().Expected(request_, 0));
}

TEST(HandoffTest, ChunksComeAsBlocksFillAndCachedOnesAtOnce) {
  HarnessOptions options = Options();
  options.max_step_tokens = 6;
  EngineHarness prefill(options);
  Request request = MakeRequest(1, 14, 5, 5);
  request.kind = RequestKind::kPrefill;
  prefill.Submit(request);
  std::vector<size_t> announced;
  while (prefill.Step()) announced.push_back(prefill.log(request).announced.size());
  EXPECT_EQ(announced, (std::vector<size_t>{1, 3, 4}));
  EXPECT_TRUE(prefill.log(request).all_announced);
  EXPECT_EQ(prefill.log(request).layers_told, 3);

  Request again = request;
  again.id = RequestId(2);
  prefill.Submit(again);
  prefill.Step();
  // Of 14 tokens, three full blocks are cached. All blocks are announced after one step.
  EXPECT_EQ(prefill.log(again).announced.size(), 4u);
  EXPECT_EQ(prefill.log(again).times->cached_tokens, 12);
}

TEST(HandoffTest, LeaseOutlivesTheRequestUntilReleased) {
  EngineHarness harness(Options());
  Request prompt = MakeRequest(1, 14, 5, 5);
  prompt.kind = RequestKind::kPrefill;
  harness.Submit(prompt);
  ASSERT_TRUE(harness.RunUntilIdle());
  EXPECT_TRUE(harness.log(prompt).times.has_value());
  EXPECT_EQ(harness.engine().Stats().blocks_free, 124);
  EXPECT_EQ(harness.engine().Stats().leases, 1);

  Request awaiting = MakeRequest(2, 9, 6, 5);
  awaiting.kind = RequestKind::kDecode;
  harness.Submit(awaiting);
  ASSERT_TRUE(harness.RunUntilIdle());
  EXPECT_EQ(harness.engine().Stats().awaiting_kv, 1);
  harness.engine().Cancel(awaiting.id, awaiting.epoch);
  ASSERT_TRUE(harness.RunUntilIdle());
  EXPECT_EQ(harness.log(awaiting).failure->code(), StatusCode::kCancelled);
  EXPECT_EQ(harness.engine().Stats().awaiting_kv, 0);
  EXPECT_EQ(harness.engine().Stats().blocks_free, 121) << "a peer may still write there";
  // An activation after the cancel has no effect.
  harness.engine().Activate(awaiting.id, awaiting.epoch, std::vector<SampledToken>(1));
  ASSERT_TRUE(harness.RunUntilIdle());

  harness.engine().ReleaseKv(prompt.id, prompt.epoch);
  harness.engine().ReleaseKv(awaiting.id, awaiting.epoch);
  harness.engine().ReleaseKv(awaiting.id, awaiting.epoch);
  ASSERT_TRUE(harness.RunUntilIdle());
  EXPECT_EQ(harness.engine().Stats().blocks_free, 128);
  EXPECT_EQ(harness.engine().Stats().leases, 0);
}

TEST(HandoffTest, RequestThatEndsWithItsFirstTokenIsNotHandedOff) {
  EngineHarness prefill(Options());
  EngineHarness decode(Options());
  HandoffDriver driver(prefill, decode);
  const Request one = MakeRequest(1, 9, 5, 1);
  Request stops = MakeRequest(2, 9, 6, 20);
  stops.samples = 2;
  stops.sampling.temperature = 1;
  stops.stop_tokens = {prefill.model().Expected(stops, 0)[0]};
  driver.Start(one);
  driver.Start(stops);
  ASSERT_TRUE(driver.RunUntilIdle());
  EXPECT_EQ(prefill.log(one).samples[0][0].finish, FinishReason::kLength);
  EXPECT_EQ(prefill.log(stops).samples[0][0].finish, FinishReason::kStop);
  EXPECT_EQ(prefill.log(stops).samples[1][0].finish, FinishReason::kHandedOff);
  // The decode side ends the same samples, because it has the same first tokens.
  EXPECT_TRUE(decode.log(one).times.has_value());
  EXPECT_TRUE(decode.log(one).samples.empty());
  EXPECT_TRUE(decode.log(stops).Tokens(0).empty());
  EXPECT_EQ(driver.Tokens(stops, 1), prefill.model().Expected(stops, 1));
}

// The older request ranks first and needs a block while the prompt has all others. A decode worker
// may hold blocks for the prompt, so the older request gives way.
TEST(HandoffTest, APromptThatIsHandedOffIsNeverPreempted) {
  for (const bool prefix_cache : {true, false}) {
    HarnessOptions options = Options();
    options.prefix_cache = prefix_cache;
    options.kv.blocks = 15;
    options.max_step_tokens = 3;
    EngineHarness prefill(options);
    EngineHarness decode(Options());
    HandoffDriver driver(prefill, decode);
    const Request older = MakeRequest(1, 16, 8, 30);
    prefill.Submit(older);
    for (int i = 0; i < 3; ++i) prefill.Step();
    const Request prompt = MakeRequest(2, 35, 9, 5);
    driver.Start(prompt);
    ASSERT_TRUE(driver.RunUntilIdle());
    EXPECT_GT(prefill.engine().Stats().preemptions, 0);
    EXPECT_EQ(prefill.log(older).Tokens(0), prefill.model().Expected(older, 0));
    EXPECT_EQ(driver.Tokens(prompt, 0), prefill.model().Expected(prompt, 0));
    EXPECT_EQ(prefill.engine().Stats().blocks_free, 15);
    // Each token of the prompt is computed once; the older request is computed again from the
    // cache, or from its begin.
    EXPECT_EQ(prefill.log(prompt).starts, 1);
  }
}

// A held request takes no blocks and lets others pass, until its peer is ready.
TEST(HandoffTest, AHeldRequestTakesNoBlocks) {
  for (const RequestKind kind : {RequestKind::kPrefill, RequestKind::kDecode}) {
    HarnessOptions options = Options();
    EngineHarness harness(options);
    Request held = MakeRequest(1, 35, 9, 5);
    held.kind = kind;
    held.peer_first = true;
    harness.Submit(held);
    harness.Step();
    EXPECT_EQ(harness.engine().Stats().waiting, 1);
    EXPECT_EQ(harness.engine().Stats().blocks_free, harness.engine().Stats().blocks_total);
    const bool decodes = kind == RequestKind::kDecode;
    EXPECT_EQ(harness.engine().Stats().blocks_expected, decodes ? 9 : 0);
    EXPECT_EQ(harness.engine().Stats().queued_tokens, decodes ? 0 : 35);
    const Request other = MakeRequest(2, 16, 8, 3);
    harness.Submit(other);
    for (int i = 0; i < 100 && !harness.log(other).ended(); ++i) harness.Step();
    EXPECT_EQ(harness.log(other).Tokens(0), harness.model().Expected(other, 0));
    EXPECT_EQ(harness.log(held).starts, 0);
    EXPECT_FALSE(harness.log(held).begun());

    harness.engine().PeerReady(held.id, held.epoch);
    for (int i = 0; i < 20; ++i) harness.Step();
    EXPECT_EQ(harness.log(held).starts, decodes ? 0 : 1);
    EXPECT_EQ(harness.log(held).reservation.has_value(), decodes);
    EXPECT_EQ(harness.engine().Stats().blocks_expected, 0);
    harness.engine().Cancel(held.id, held.epoch);
    harness.Step();
    harness.engine().ReleaseKv(held.id, held.epoch);
    ASSERT_TRUE(harness.RunUntilIdle());
    EXPECT_EQ(harness.engine().Stats().blocks_free, harness.engine().Stats().blocks_total);
  }
}

TEST(HandoffTest, AHeldRequestEndsByCancelAndDeadline) {
  EngineHarness harness(Options());
  Request cancelled = MakeRequest(1, 35, 9, 5);
  cancelled.kind = RequestKind::kDecode;
  cancelled.peer_first = true;
  Request late = cancelled;
  late.id = RequestId(2);
  late.deadline = harness.clock().Now() + std::chrono::milliseconds(20);
  harness.Submit(cancelled);
  harness.Submit(late);
  harness.Step();
  harness.engine().Cancel(cancelled.id, cancelled.epoch);
  for (int i = 0; i < 30; ++i) harness.Step();
  EXPECT_EQ(harness.log(cancelled).failure->code(), StatusCode::kCancelled);
  EXPECT_EQ(harness.log(late).failure->code(), StatusCode::kDeadlineExceeded);
  EXPECT_EQ(harness.engine().Stats().waiting, 0);
  EXPECT_EQ(harness.engine().Stats().blocks_expected, 0);
  harness.engine().PeerReady(late.id, late.epoch);  // it comes late
  ASSERT_TRUE(harness.RunUntilIdle());
}

TEST(HandoffTest, WrongActivationFailsTheRequest) {
  EngineHarness decode(Options());
  Request request = MakeRequest(1, 9, 5, 5);
  request.kind = RequestKind::kDecode;
  decode.Submit(request);
  decode.Step();
  decode.engine().Activate(request.id, request.epoch, std::vector<SampledToken>(2));
  ASSERT_TRUE(decode.RunUntilIdle());
  EXPECT_EQ(decode.log(request).failure->code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace baton
