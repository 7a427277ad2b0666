#include <cmath>

#include <gtest/gtest.h>

#include "tests/parity/device_tensor.h"
#include "tests/parity/parity.h"
#include "tests/parity/sampling_reference.h"
#include "tests/parity/step_plan.h"

// Rows as wide as a real vocabulary. One step has rows for every parameter, alone and combined.
namespace baton::parity {
namespace {

constexpr int64_t kVocabulary = 128256;
// The rounding error of float32 weights and their sums.
constexpr double kRounding = 3e-6;

struct Row {
  SamplingParams params;
  std::vector<TokenId> prompt, output, banned;
};

std::vector<TokenId> RandomTokens(std::mt19937_64& random, size_t count) {
  std::vector<TokenId> tokens;
  for (size_t i = 0; i < count; ++i) {
    // Half of the tokens are below 50, so that some occur several times.
    tokens.push_back(static_cast<TokenId>(random() % (i % 2 == 0 ? kVocabulary : 50)));
  }
  return tokens;
}

struct Choice {
  float temperature = 1;
  int32_t top_k = 0;
  float top_p = 1;
  float min_p = 0;
  int32_t top_logprobs = -1;
};

SamplingParams ParamsOf(const Choice& choice) {
  SamplingParams params;
  params.temperature = choice.temperature;
  params.top_k = choice.top_k;
  params.top_p = choice.top_p;
  params.min_p = choice.min_p;
  params.top_logprobs = choice.top_logprobs;
  return params;
}

std::vector<Row> MakeRows() {
  std::vector<Row> rows;
  for (const Choice& choice :
       {Choice{.temperature = 0},
        Choice{},
        Choice{.temperature = 0.6f, .min_p = 0.05f},
        Choice{.top_k = 50},
        Choice{.top_p = 0.9f},
        Choice{.temperature = 1.5f, .top_p = 0.999f},  // tens of thousands of candidates
        Choice{.temperature = 2, .top_k = 20000},
        Choice{.temperature = 0.8f, .top_k = 40, .top_p = 0.95f, .min_p = 0.01f},
        Choice{.top_k = 1},
        Choice{.temperature = 0.7f, .top_logprobs = 0},
        Choice{.top_p = 0.5f, .top_logprobs = 20}}) {
    rows.push_back({ParamsOf(choice), {}, {}, {}});
  }
  std::mt19937_64 random(12);
  for (int i = 0; i < 6; ++i) {
    Row row;
    row.params = ParamsOf({.temperature = i % 3 == 0 ? 0.0f : 0.9f,
                           .top_k = i % 2 == 0 ? 100 : 0,
                           .top_p = i < 3 ? 0.97f : 1.0f,
                           .top_logprobs = i - 1});
    row.params.repetition_penalty = i == 5 ? 1.0f : 1.3f;
    row.params.presence_penalty = 0.4f;
    row.params.frequency_penalty = 0.2f;
    row.prompt = RandomTokens(random, 3000);
    row.output = RandomTokens(random, 700);
    row.banned = RandomTokens(random, 5);
    for (const TokenId token : RandomTokens(random, 30)) {
      row.params.logit_bias.emplace_back(token, i % 2 == 0 ? 4.0f : -4.0f);
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

void CheckWide(Ops& ops, float spread) {
  const std::vector<Row> rows = MakeRows();
  const auto count = static_cast<int64_t>(rows.size());
  const auto logits = RandomFloats(static_cast<size_t>(count * kVocabulary), 77, spread);
  std::vector<SamplingRow> sampling;
  std::vector<SamplingParams> params;
  for (const Row& row : rows) params.push_back(row.params);
  for (size_t i = 0; i < rows.size(); ++i) {
    params[i].seed = 1000 + i;
    sampling.push_back({&params[i], i, rows[i].prompt, rows[i].output, rows[i].banned});
  }
  DeviceTensor tensor(ops, DType::kF32, count, kVocabulary);
  tensor.Write(logits);
  std::vector<SampledToken> got(rows.size());
  InStep(ops, [&] { ops.Sample(tensor.view(), sampling, got); });
  for (size_t i = 0; i < rows.size(); ++i) {
    const std::span<const float> row(logits.data() + i * kVocabulary, kVocabulary);
    const ReferenceToken want = ReferenceSample(row, sampling[i]);
    if (want.margin > kRounding) {
      EXPECT_EQ(got[i].token, want.token) << "row " << i << ", margin " << want.margin;
    }
    const int32_t top = params[i].top_logprobs;
    if (top < 0) continue;
    EXPECT_EQ(got[i].top.size(), static_cast<size_t>(top)) << "row " << i;
    if (got[i].token == want.token) {
      EXPECT_NEAR(got[i].logprob, want.logprob, 1e-3) << "row " << i;
    }
    for (size_t k = 1; k < got[i].top.size(); ++k) {
      EXPECT_GE(got[i].top[k - 1].logprob, got[i].top[k].logprob) << "row " << i;
    }
  }
}

}  // namespace

std::vector<Case> WideSamplingCases() {
  std::vector<Case> cases;
  for (const float spread : {0.5f, 3.0f}) {
    cases.push_back({fmt::format("Sample_wide_{}", spread < 1 ? "flat" : "steep"),
                     [=](Ops& ops, const Tolerance&) { CheckWide(ops, spread); }});
  }
  return cases;
}

}  // namespace baton::parity
