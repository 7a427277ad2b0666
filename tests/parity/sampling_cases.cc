#include <algorithm>
#include <chrono>
#include <cmath>
#include <initializer_list>
#include <limits>
#include <map>
#include <thread>

#include <gtest/gtest.h>

#include "kernels/token_mask.h"
#include "tests/parity/device_tensor.h"
#include "tests/parity/parity.h"
#include "tests/parity/step_plan.h"

namespace baton::parity {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Runs one step that only samples.
Status Sample(Ops& ops,
              const std::vector<float>& logits,
              const std::vector<SamplingRow>& rows,
              std::vector<SampledToken>& out) {
  History history(ops, {1, 1, 8}, DType::kF32, 16, {{0, 1}});
  const StepPlan plan = history.LastStep();
  const auto count = static_cast<int64_t>(rows.size());
  const auto vocabulary = static_cast<int64_t>(logits.size()) / count;
  DeviceTensor view(ops, DType::kF32, count, vocabulary);
  view.Write(logits);
  out.resize(rows.size());
  BATON_RETURN_IF_ERROR(ops.BeginStep(plan.input(), history.cache().view));
  ops.Sample(view.view(), rows, out);
  return ops.EndStep();
}

SampledToken SampleOne(Ops& ops, const std::vector<float>& logits, const SamplingRow& row) {
  std::vector<SampledToken> out;
  const Status status = Sample(ops, logits, {row}, out);
  EXPECT_TRUE(status.ok()) << status;
  return out.at(0);
}

// How often each token is sampled, over `draws` positions.
std::map<TokenId, int> Histogram(Ops& ops,
                                 const std::vector<float>& logits,
                                 const SamplingParams& params,
                                 int draws) {
  std::vector<float> all;
  std::vector<SamplingRow> rows(static_cast<size_t>(draws));
  for (size_t i = 0; i < rows.size(); ++i) {
    all.insert(all.end(), logits.begin(), logits.end());
    rows[i].params = &params;
    rows[i].position = i;
  }
  std::vector<SampledToken> out;
  const Status status = Sample(ops, all, rows, out);
  EXPECT_TRUE(status.ok()) << status;
  std::map<TokenId, int> counts;
  for (const SampledToken& token : out) ++counts[token.token];
  return counts;
}

std::vector<TokenId> Keys(const std::map<TokenId, int>& counts) {
  std::vector<TokenId> keys;
  for (const auto& [token, count] : counts) keys.push_back(token);
  return keys;
}

void CheckGreedy(Ops& ops) {
  SamplingParams params;
  params.temperature = 0;
  SamplingRow row;
  row.params = &params;
  std::vector<float> logits = RandomFloats(1000, 5);
  logits[777] = 50;
  EXPECT_EQ(SampleOne(ops, logits, row).token, 777);
  logits[3] = logits[900] = 50;
  EXPECT_EQ(SampleOne(ops, logits, row).token, 3) << "ties go to the lower id";
  const TokenId banned[] = {3};
  row.banned = banned;
  EXPECT_EQ(SampleOne(ops, logits, row).token, 777);
  params.logit_bias = {{777, -10.0f}, {5000, 3.0f}, {-1, 3.0f}};
  EXPECT_EQ(SampleOne(ops, logits, row).token, 900);
}

// A forced token is chosen whatever its logit, and gets its logprob and the highest ones, as it
// would if it had been chosen by itself.
void CheckForced(Ops& ops) {
  SamplingParams params;
  params.temperature = 0;
  params.top_logprobs = 3;
  const std::vector<float> logits = RandomFloats(1000, 9);
  std::vector<float> all;
  std::vector<SamplingRow> rows;
  for (const TokenId forced : {0, 1, 500, 999, kNoToken}) {
    all.insert(all.end(), logits.begin(), logits.end());
    rows.push_back({.params = &params, .forced = forced});
  }
  std::vector<SampledToken> out;
  ASSERT_TRUE(Sample(ops, all, rows, out).ok());
  double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit));
  const auto best = std::max_element(logits.begin(), logits.end()) - logits.begin();
  EXPECT_EQ(out.back().token, best);
  for (size_t i = 0; i < rows.size(); ++i) {
    if (rows[i].forced != kNoToken) {
      EXPECT_EQ(out[i].token, rows[i].forced);
    }
    const double logit = logits[static_cast<size_t>(out[i].token)];
    EXPECT_NEAR(out[i].logprob, logit - std::log(sum), 1e-4) << i;
    EXPECT_EQ(out[i].top, out.back().top) << i;
  }
}

// Every kind of draw, with masks that are computed before the step, during it, and too late.
void CheckMasks(Ops& ops) {
  constexpr int32_t kVocabulary = 1003;
  const std::vector<float> logits = RandomFloats(kVocabulary, 6);
  TokenMask mask(kVocabulary);
  const auto allow = [&](std::initializer_list<TokenId> tokens) {
    mask.Begin();
    std::ranges::fill(mask.words(), 0);
    for (const TokenId token : tokens) mask.words()[token / 32] |= 1u << token % 32;
    mask.Finish();
  };
  std::vector<SamplingParams> kinds(4);
  kinds[0].temperature = 0;
  kinds[2].top_k = 3;
  kinds[3].top_p = 0.9f;
  for (SamplingParams& params : kinds) {
    SCOPED_TRACE(fmt::format("temperature {}, top_k {}", params.temperature, params.top_k));
    SamplingRow row;
    row.params = &params;
    row.mask = &mask;
    for (const TokenId token : {0, 31, 32, 517, 1002}) {
      allow({token});
      EXPECT_EQ(SampleOne(ops, logits, row).token, token);
    }
    allow({5, 700});
    const TokenId banned[] = {5};
    row.banned = banned;
    EXPECT_EQ(SampleOne(ops, logits, row).token, 700);
    row.banned = {};
    // Logprobs are of all tokens.
    params.top_logprobs = 2;
    SamplingRow free = row;
    free.mask = nullptr;
    EXPECT_EQ(SampleOne(ops, logits, row).top, SampleOne(ops, logits, free).top);
    params.top_logprobs = -1;
    allow({});
    EXPECT_EQ(SampleOne(ops, logits, row).token, kNoToken);
  }
  SamplingRow row;
  row.params = &kinds[1];
  row.mask = &mask;
  mask.Begin();
  SamplingRow other;
  other.params = &kinds[0];
  std::vector<float> both = logits;
  both.insert(both.end(), logits.begin(), logits.end());
  std::vector<SampledToken> out;
  ASSERT_TRUE(Sample(ops, both, {row, other}, out).ok());
  EXPECT_EQ(out[0].token, kLateToken);
  EXPECT_EQ(out[1].token, SampleOne(ops, logits, other).token);
  row.waits_for_mask = true;
  std::jthread computes([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    std::ranges::fill(mask.words(), 0);
    mask.words()[3] = 4;
    mask.Finish();
  });
  EXPECT_EQ(SampleOne(ops, logits, row).token, 98);
}

void CheckPenalties(Ops& ops) {
  SamplingParams params;
  params.temperature = 0;
  SamplingRow row;
  row.params = &params;
  const std::vector<float> logits = {4.0f, 3.9f, 3.0f, -1.0f};
  const TokenId prompt[] = {0};
  const TokenId output[] = {1, 1, 1};
  row.prompt = prompt;
  row.output = output;
  params.repetition_penalty = 2.0f;  // 2.0, 1.95, 3.0
  EXPECT_EQ(SampleOne(ops, logits, row).token, 2);
  params.repetition_penalty = 1.0f;
  params.presence_penalty = 5.0f;  // applies only to output tokens: 4.0, −1.1, 3.0
  EXPECT_EQ(SampleOne(ops, logits, row).token, 0);
  const TokenId both[] = {0, 1, 1};
  row.output = both;
  params.presence_penalty = 0;
  params.frequency_penalty = 0.5f;  // 3.5, 2.9, 3.0
  EXPECT_EQ(SampleOne(ops, logits, row).token, 0);
  params.frequency_penalty = 1.5f;  // 2.5, 0.9, 3.0
  EXPECT_EQ(SampleOne(ops, logits, row).token, 2);
  const std::vector<float> negative = {-1.0f, -1.5f};
  params.frequency_penalty = 0;
  params.repetition_penalty = 2.0f;  // the −1 of the prompt token becomes −2
  row.output = {};
  EXPECT_EQ(SampleOne(ops, negative, row).token, 1);
}

void CheckFrequencies(Ops& ops) {
  // Probabilities 1/2, 1/4, 1/8, 1/8 after temperature 2.
  const float unit = 2 * std::log(2.0f);
  const std::vector<float> logits = {-1 * unit, -2 * unit, -3 * unit, -3 * unit};
  SamplingParams params;
  params.temperature = 2;
  params.seed = 11;
  constexpr int kDraws = 8000;
  const auto counts = Histogram(ops, logits, params, kDraws);
  const double want[] = {0.5, 0.25, 0.125, 0.125};
  for (TokenId token = 0; token < 4; ++token) {
    // Five standard deviations.
    const double p = want[token];
    EXPECT_NEAR(counts.at(token), kDraws * p, 5 * std::sqrt(kDraws * p * (1 - p))) << token;
  }
}

void CheckCuts(Ops& ops) {
  const float unit = std::log(2.0f);
  // 1/16, 1/2, 1/4, 1/8, 1/16
  const std::vector<float> logits = {-4 * unit, -1 * unit, -2 * unit, -3 * unit, -4 * unit};
  SamplingParams params;
  using Tokens = std::vector<TokenId>;
  params.top_k = 2;
  EXPECT_EQ(Keys(Histogram(ops, logits, params, 300)), (Tokens{1, 2}));
  params.top_k = 4;  // on a tie the lower id is kept
  EXPECT_EQ(Keys(Histogram(ops, logits, params, 600)), (Tokens{0, 1, 2, 3}));
  params.top_k = 100;
  EXPECT_EQ(Keys(Histogram(ops, logits, params, 600)), (Tokens{0, 1, 2, 3, 4}));
  params.top_k = 0;
  params.top_p = 0.7f;
  EXPECT_EQ(Keys(Histogram(ops, logits, params, 300)), (Tokens{1, 2}));
  params.top_p = 0.8f;
  EXPECT_EQ(Keys(Histogram(ops, logits, params, 400)), (Tokens{1, 2, 3}));
  params.top_p = 1e-6f;
  EXPECT_EQ(Keys(Histogram(ops, logits, params, 50)), (Tokens{1}));
  params.top_p = 0.8f;
  params.top_k = 2;  // leaves 2/3 and 1/3: a top_p of 0.8 needs both, 0.6 only one
  EXPECT_EQ(Keys(Histogram(ops, logits, params, 300)), (Tokens{1, 2}));
  params.top_p = 0.6f;
  EXPECT_EQ(Keys(Histogram(ops, logits, params, 300)), (Tokens{1}));
  params.top_p = 1;
  params.top_k = 0;
  params.min_p = 0.24f;
  EXPECT_EQ(Keys(Histogram(ops, logits, params, 400)), (Tokens{1, 2, 3}));
  params.min_p = 1;
  EXPECT_EQ(Keys(Histogram(ops, logits, params, 50)), (Tokens{1}));
  params.min_p = 0.3f;
  params.top_k = 3;
  EXPECT_EQ(Keys(Histogram(ops, logits, params, 300)), (Tokens{1, 2}));
}

void CheckSeeds(Ops& ops) {
  const std::vector<float> logits = RandomFloats(5000, 8);
  SamplingParams params;
  params.seed = 99;
  SamplingRow row;
  row.params = &params;
  std::vector<TokenId> first;
  std::vector<TokenId> again;
  std::vector<TokenId> other;
  for (uint64_t position = 0; position < 20; ++position) {
    row.position = position;
    params.seed = 99;
    first.push_back(SampleOne(ops, logits, row).token);
    again.push_back(SampleOne(ops, logits, row).token);
    params.seed = 100;
    other.push_back(SampleOne(ops, logits, row).token);
  }
  EXPECT_EQ(first, again);
  EXPECT_NE(first, other);
  std::sort(first.begin(), first.end());
  EXPECT_GT(std::unique(first.begin(), first.end()) - first.begin(), 10) << "positions differ";
}

void CheckLogprobs(Ops& ops) {
  const std::vector<float> logits = RandomFloats(3000, 9, 2.0f);
  double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit));
  std::vector<TokenId> order(logits.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<TokenId>(i);
  const auto at = [&](TokenId token) { return logits[static_cast<size_t>(token)]; };
  std::sort(order.begin(), order.end(), [&](TokenId a, TokenId b) { return at(a) > at(b); });
  SamplingParams params;
  params.temperature = 0.3f;  // must not change the logprobs, and neither must the bias
  params.logit_bias = {{17, 100.0f}};
  params.top_logprobs = 5;
  SamplingRow row;
  row.params = &params;
  SampledToken token = SampleOne(ops, logits, row);
  EXPECT_EQ(token.token, 17);
  EXPECT_NEAR(token.logprob, at(17) - std::log(sum), 1e-4);
  ASSERT_EQ(token.top.size(), 5U);
  for (size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(token.top[i].token, order[i]);
    EXPECT_NEAR(token.top[i].logprob, at(order[i]) - std::log(sum), 1e-4);
  }
  params.top_logprobs = 0;
  token = SampleOne(ops, logits, row);
  EXPECT_TRUE(token.top.empty());
  EXPECT_NEAR(token.logprob, at(17) - std::log(sum), 1e-4);
  params.top_logprobs = 5000;
  EXPECT_EQ(SampleOne(ops, logits, row).top.size(), logits.size());
}

void CheckOddLogits(Ops& ops) {
  SamplingParams params;
  SamplingRow row;
  row.params = &params;
  for (const float temperature : {0.0f, 1.0f, 1e-40f, 1e30f}) {
    for (const int32_t top_k : {0, 2}) {
      for (const float top_p : {1.0f, 0.5f}) {
        params.temperature = temperature;
        params.top_k = top_k;
        params.top_p = top_p;
        params.top_logprobs = 2;
        const SampledToken one = SampleOne(ops, {kNan, -kInfinity, 3.0f, kNan}, row);
        EXPECT_EQ(one.token, 2);
        EXPECT_FLOAT_EQ(one.logprob, 0.0f);
        EXPECT_EQ(SampleOne(ops, {1.0f, kInfinity, 3.0f, kNan}, row).token, 1);
        std::vector<SampledToken> out;
        const Status status = Sample(
            ops, {kNan, kNan, kNan, -kInfinity, kNan, -kInfinity, 3.0f, kNan}, {row, row}, out);
        ASSERT_TRUE(status.ok()) << status;
        EXPECT_EQ(out[0].token, kNoToken);
        EXPECT_TRUE(out[0].top.empty());
        EXPECT_EQ(out[1].token, 2) << "the other rows of the step have their tokens";
        SamplingRow all_banned = row;
        const TokenId both[] = {0, 1};
        all_banned.banned = both;
        EXPECT_EQ(SampleOne(ops, {5.0f, 6.0f}, all_banned).token, kNoToken);
        EXPECT_EQ(SampleOne(ops, {5.0f}, row).token, 0);
      }
    }
  }
}

}  // namespace

std::vector<Case> SamplingCases() {
  const auto plain = [](std::string name, void (*check)(Ops&)) {
    return Case{std::move(name), [=](Ops& ops, const Tolerance&) { check(ops); }};
  };
  return {plain("Sample_greedy", CheckGreedy),
          plain("Sample_forced", CheckForced),
          plain("Sample_masks", CheckMasks),
          plain("Sample_penalties", CheckPenalties),
          plain("Sample_frequencies", CheckFrequencies),
          plain("Sample_cuts", CheckCuts),
          plain("Sample_seeds", CheckSeeds),
          plain("Sample_logprobs", CheckLogprobs),
          plain("Sample_odd_logits", CheckOddLogits)};
}

}  // namespace baton::parity
