#include <algorithm>
#include <optional>
#include <random>
#include <set>
#include <string>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "common/engine/kv_room.h"
#include "tests/fakes/engine_harness.h"
#include "tests/fakes/fake_grammar.h"
#include "tests/unit/engine/handoff_driver.h"

namespace baton {
namespace {

using Random = std::mt19937_64;

constexpr int32_t kBlockTokens = 4;
constexpr size_t kLeastOutput = 9;  // of a constrained request
constexpr size_t kLeastOfFew = 30;  // of one whose model has few tokens

HarnessOptions RandomOptions(Random& random, GrammarCompiler* grammars) {
  HarnessOptions options;
  options.grammars = grammars;
  options.kv.block_tokens = kBlockTokens;
  options.kv.blocks = static_cast<int32_t>(5 + random() % 47);
  options.max_sequences = static_cast<int32_t>(3 + random() % 10);
  options.max_step_tokens = options.max_sequences + static_cast<int32_t>(random() % 40);
  options.policy = static_cast<SchedulingPolicy>(random() % 4);
  options.admission = static_cast<AdmissionPolicy>(random() % 2);
  options.prefix_cache = random() % 4 != 0;
  options.max_waiting_reservations = static_cast<int32_t>(random() % 20);
  options.max_reservation_wait = std::chrono::milliseconds(200);
  options.full_step_tokens = static_cast<int32_t>(1 + random() % 40);
  options.repeat_output_singly = random() % 2 == 0;
  options.state_checkpoint_tokens = static_cast<int32_t>(random() % 3 * 8);
  options.lookup_drafts = static_cast<int32_t>(random() % 2 * (random() % 7));
  return options;
}

// Requests share prefixes, so that the prefix cache is used.
Request RandomRequest(Random& random, uint64_t id, Time now) {
  Request request = MakeRequest(id, 1, random() % 6, static_cast<int32_t>(1 + random() % 24));
  std::vector<TokenId> tokens = MakeRequest(id, 40, random() % 3, 1).tokens.ToVector();
  tokens.resize(1 + random() % 40);
  for (uint64_t tail = random() % 6; tail > 0; --tail) {
    tokens.push_back(static_cast<TokenId>(random() % 1000));
  }
  request.tokens = std::move(tokens);
  request.prompt_length = static_cast<int32_t>(request.tokens.size());
  if (random() % 16 == 0) request.max_tokens = static_cast<int32_t>(100 + random() % 100);
  request.samples = random() % 4 == 0 ? static_cast<int32_t>(1 + random() % 3) : 1;
  if (random() % 5 == 0 && request.prompt_length > 1 && request.max_tokens > 1) {
    // Resumed: the last token counts as output.
    --request.prompt_length;
    request.samples = 1;
    request.first_sample = static_cast<int32_t>(random() % 3);
  }
  request.min_tokens = static_cast<int32_t>(random() % request.max_tokens);
  for (int i = 0; i < 40; ++i) request.stop_tokens.push_back(static_cast<TokenId>(random() % 1000));
  request.priority = static_cast<int32_t>(random() % 3);
  if (request.prompt_length == std::ssize(request.tokens) && random() % 5 == 0) {
    request.grammar = std::to_string(kLeastOutput);
    request.min_tokens = 0;
  }
  if (random() % 4 == 0) request.prompt_logprobs = 0;
  if (random() % 8 == 0) request.deadline = now + std::chrono::milliseconds(1 + random() % 200);
  return request;
}

// The same for a model of few tokens, whose output repeats itself by chance, so that some drafts
// are right.
void ReduceVocabulary(Request& request, Random& random, int32_t vocabulary) {
  EditTokens(request, [&](std::vector<TokenId>& tokens) {
    for (TokenId& token : tokens) token %= vocabulary;
  });
  const bool constrained = !request.grammar.empty();
  if (constrained) request.grammar = fmt::format("{} of 3", kLeastOfFew);
  if (constrained && random() % 2 == 0)
    request.max_tokens = static_cast<int32_t>(20 + random() % 60);
  request.stop_tokens.clear();
  if (constrained || random() % 3 == 0) request.stop_tokens = {vocabulary - 1};
}

// What constrains the output of `request`, if anything.
std::optional<FakeGrammar> GrammarOf(const Request& request) {
  if (request.grammar.empty()) return std::nullopt;
  const bool few = request.grammar.ends_with("of 3");
  return FakeGrammar(std::stoul(request.grammar),
                     nullptr,
                     std::nullopt,
                     few ? FakeGrammar::Kind::kTwoOfThree : FakeGrammar::Kind::kOneOfFive);
}

// What the arena of `harness` holds.
KvRoom RoomOf(EngineHarness& harness, const HarnessOptions& options) {
  return {harness.model().kv_layout(),
          options.kv.blocks,
          options.max_step_tokens,
          StateBlocks(harness.model())};
}

// One seed in three: no window. Windows are shorter and longer than a block and than a prompt. One
// seed in four: layers of two or three windows, most of them with a layer that reads all tokens.
// Three seeds in seven: chunks in place of sliding windows.
// One in five: layers with states beside one that reads all tokens.
FakeExecutor::Shape ShapeFor(uint64_t seed) {
  if (seed % 5 == 2) {
    FakeExecutor::Shape hybrid = {.max_logit_rows = 16, .windows = {0, 0}, .state_layers = {0}};
    if (seed % 3 == 0) hybrid.windows.push_back(0);
    if (seed % 3 == 0) hybrid.state_layers.push_back(2);
    hybrid.state_dim = static_cast<int32_t>(4 + seed % 28);
    hybrid.queues_steps = seed % 2 == 0;
    hybrid.vocabulary = seed % 7 < 3 ? 3 : 1000;
    return hybrid;
  }
  std::vector<KvWindow> windows = {seed % 3 == 0 ? 0 : static_cast<int32_t>(2 + seed % 29)};
  if (seed % 4 == 1) windows.push_back(static_cast<int32_t>(2 + seed % 11));
  if (seed % 8 == 1) windows.push_back(seed % 16 == 1 ? 0 : static_cast<int32_t>(2 + seed % 17));
  for (KvWindow& window : windows) window.chunked = !window.reads_all() && seed % 7 > 3;
  return {.vocabulary = seed % 7 < 3 ? 3 : 1000,
          .max_logit_rows = 16,
          .windows = windows,
          .queues_steps = seed % 2 == 0};
}

struct Sent {
  Request request;
  bool handoff = false;
  bool cancelled = false;
  std::set<int32_t> stopped = {};  // samples, counted from 0
};

class RandomWorkload {
 public:
  RandomWorkload(uint64_t seed, const FakeExecutor::Shape& shape)
      : random_(seed),
        prefill_options_(RandomOptions(random_, &compiler_)),
        decode_options_(RandomOptions(random_, &compiler_)),
        prefill_(prefill_options_, shape),
        decode_(decode_options_, shape),
        driver_(prefill_, decode_, &random_) {}

  void Run(int requests) {
    int idle = 0;
    while (idle < 250 && !::testing::Test::HasFailure()) {
      if (sent_.size() < static_cast<size_t>(requests) && random_() % 3 == 0) Submit();
      if (!sent_.empty() && idle == 0) Disturb();
      bool worked = prefill_.Step("prefill");
      worked |= decode_.Step("decode");
      worked |= driver_.Pump();
      const bool done = !worked && sent_.size() == static_cast<size_t>(requests);
      idle = done ? idle + 1 : 0;
    }
    for (const Sent& sent : sent_) CheckEnd(sent);
    CheckEmpty(prefill_, prefill_options_);
    CheckEmpty(decode_, decode_options_);
  }

  int64_t preemptions() {
    return prefill_.engine().Stats().preemptions + decode_.engine().Stats().preemptions;
  }
  int64_t completed() const { return completed_; }
  int64_t scored() const { return scored_; }
  int64_t accepted_drafts() {
    return prefill_.engine().Stats().accepted_drafts + decode_.engine().Stats().accepted_drafts;
  }
  int64_t steps_behind() { return decode_.model().steps_behind(); }

 private:
  void Submit() {
    Sent sent{RandomRequest(random_, sent_.size() + 1, prefill_.clock().Now())};
    const int32_t vocabulary = decode_.model().traits().vocabulary;
    if (vocabulary < 1000) ReduceVocabulary(sent.request, random_, vocabulary);
    sent.handoff = random_() % 2 == 0;
    if (sent.handoff) {
      driver_.Start(sent.request);
    } else {
      decode_.Submit(sent.request);
    }
    sent_.push_back(sent);
  }

  void Disturb() {
    if (random_() % 40 == 0) CancelOne();
    if (random_() % 40 == 0) StopOne();
    if (random_() % 40 == 0) decode_.model().DelayMasks(static_cast<int>(1 + random_() % 4));
    if (random_() % 400 == 0) FailAStep(random_() % 2 == 0 ? prefill_ : decode_);
  }

  void CancelOne() {
    Sent& sent = sent_[random_() % sent_.size()];
    sent.cancelled = true;
    if (sent.handoff) {
      driver_.Cancel(sent.request);
    } else {
      decode_.engine().Cancel(sent.request.id, sent.request.epoch);
    }
  }

  void StopOne() {
    Sent& sent = sent_[random_() % sent_.size()];
    const auto sample = static_cast<int32_t>(random_() % sent.request.samples);
    sent.stopped.insert(sample);
    if (sent.handoff) prefill_.StopSample(sent.request, sent.request.first_sample + sample);
    decode_.StopSample(sent.request, sent.request.first_sample + sample);
  }

  // An engine gives up after three failed steps in a row.
  void FailAStep(EngineHarness& harness) {
    if (failed_steps_ == 2) return;
    harness.model().FailRuns(1, /*late=*/random_() % 2 == 0);
    ++failed_steps_;
  }

  // An answer ends when it fills the arena, unless the arena holds a window and three blocks. Its
  // last token needs no KV.
  size_t MaxOutput(const Request& request) {
    const KvRoom room = RoomOf(decode_, decode_options_);
    const auto most = static_cast<uint64_t>(room.max_tokens());
    return std::min<uint64_t>(request.max_tokens, most - std::min(most - 1, request.tokens.size()));
  }

  // Every request must end. A completed request has all its tokens; another request has a prefix of
  // them and a failure with a plausible code.
  void CheckEnd(const Sent& sent) {
    const Request& request = sent.request;
    const RequestLog& decode = decode_.log(request);
    const RequestLog& prefill = prefill_.log(request);
    ASSERT_TRUE(decode.ended()) << "request " << request.id.value();
    ASSERT_TRUE(!sent.handoff || prefill.ended()) << "request " << request.id.value();
    const bool completed = decode.times.has_value() && (!sent.handoff || prefill.times.has_value());
    const std::optional<FakeGrammar> grammar = GrammarOf(request);
    for (int32_t i = 0; i < request.samples; ++i) {
      std::vector<TokenId> expected =
          prefill_.model().Expected(request, i, grammar.has_value() ? &*grammar : nullptr);
      expected.resize(std::min(expected.size(), MaxOutput(request)));
      const std::vector<TokenId> got = driver_.Tokens(request, request.first_sample + i);
      if (completed && !sent.stopped.contains(i)) {
        ASSERT_EQ(got, expected) << "request " << request.id.value() << " sample " << i;
      } else {
        ASSERT_LE(got.size(), expected.size());
        ASSERT_TRUE(std::equal(got.begin(), got.end(), expected.begin()));
      }
    }
    CheckPrompt(sent, sent.handoff ? prefill : decode, completed);
    completed_ += completed;
    for (const RequestLog* log : {&decode, &prefill}) {
      if (!log->failure) continue;
      const StatusCode code = log->failure->code();
      const bool explained =
          (code == StatusCode::kCancelled && (sent.cancelled || sent.handoff)) ||
          (code == StatusCode::kDeadlineExceeded && request.deadline != kNever) ||
          (code == StatusCode::kInternal && failed_steps_ > 0) ||
          code == StatusCode::kResourceExhausted || code == StatusCode::kOutOfRange;
      EXPECT_TRUE(explained) << *log->failure;
    }
  }

  // The logprobs of the prompt come once, with a first token.
  void CheckPrompt(const Sent& sent, const RequestLog& log, bool completed) {
    const Request& request = sent.request;
    const bool resumed = std::cmp_greater(request.tokens.size(), request.prompt_length);
    const bool wanted = request.prompt_logprobs >= 0 && !resumed && request.prompt_length > 1;
    size_t times = 0;
    for (const auto& [sample, tokens] : log.samples) {
      for (const TokenOutput& token : tokens) {
        if (token.prompt.empty()) continue;
        ++times;
        ASSERT_TRUE(wanted) << "request " << request.id.value();
        ASSERT_EQ(token.index, 0);
        ASSERT_EQ(token.prompt, prefill_.model().ExpectedPrompt(request));
      }
    }
    ASSERT_LE(times, 1u);
    if (completed && wanted && sent.stopped.empty()) {
      ASSERT_EQ(times, 1u);
    }
    scored_ += static_cast<int64_t>(times);
  }

  static void CheckEmpty(EngineHarness& harness, const EngineOptions& options) {
    const EngineStats stats = harness.engine().Stats();
    EXPECT_EQ(stats.running + stats.waiting + stats.awaiting_kv + stats.leases, 0);
    EXPECT_EQ(stats.queued_tokens, 0);
    EXPECT_EQ(stats.blocks_free, stats.blocks_total);
    const bool slides = std::ranges::any_of(harness.model().traits().kv.windows,
                                            [](KvWindow window) { return !window.reads_all(); });
    if (options.admission == AdmissionPolicy::kGuaranteedNoEvict && !slides) {
      EXPECT_EQ(stats.preemptions, 0);
    }
  }

  Random random_;
  FakeGrammarCompiler compiler_;
  const HarnessOptions prefill_options_;
  const HarnessOptions decode_options_;
  EngineHarness prefill_;
  EngineHarness decode_;
  HandoffDriver driver_;
  std::vector<Sent> sent_;
  int64_t failed_steps_ = 0;
  int64_t completed_ = 0;
  int64_t scored_ = 0;
};

TEST(EngineRandomTest, EveryRequestEndsWithItsTokensAndNothingLeaks) {
  int64_t preemptions = 0;
  int64_t completed = 0;
  int64_t steps_behind = 0;
  int64_t scored = 0;
  int64_t accepted_drafts = 0;
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE(seed);
    RandomWorkload workload(seed, ShapeFor(seed));
    workload.Run(60);
    if (HasFailure()) return;
    preemptions += workload.preemptions();
    completed += workload.completed();
    steps_behind += workload.steps_behind();
    scored += workload.scored();
    accepted_drafts += workload.accepted_drafts();
  }
  // The test is useful only while the workload covers all of this.
  EXPECT_GT(preemptions, 100);
  EXPECT_GT(completed, 700);
  EXPECT_GT(scored, 100);
  EXPECT_GT(accepted_drafts, 500);
  EXPECT_GT(steps_behind, 100);
}

TEST(EngineRandomTest, APipelineGivesTheSameTokens) {
  int64_t preemptions = 0;
  int64_t completed = 0;
  int64_t steps_behind = 0;
  int64_t scored = 0;
  int64_t accepted_drafts = 0;
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE(seed);
    FakeExecutor::Shape shape = ShapeFor(seed);
    shape.queues_steps = false;
    shape.stages = static_cast<int32_t>(2 + seed % 3);
    shape.reports_late = seed % 4 < 2;
    RandomWorkload workload(seed, shape);
    workload.Run(60);
    if (HasFailure()) return;
    preemptions += workload.preemptions();
    completed += workload.completed();
    steps_behind += workload.steps_behind();
    scored += workload.scored();
    accepted_drafts += workload.accepted_drafts();
  }
  EXPECT_GT(preemptions, 50);
  EXPECT_GT(completed, 700);
  EXPECT_GT(scored, 100);
  EXPECT_GT(accepted_drafts, 500);
  EXPECT_GT(steps_behind, 2000);
}

}  // namespace
}  // namespace baton
