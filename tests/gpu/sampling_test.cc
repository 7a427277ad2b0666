#include "kernels/cuda/sampling/sampling.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/cuda/device/device_memory.h"
#include "tests/parity/sampling_reference.h"

// Compares random rows with random parameters with a reference that sorts.
namespace baton::cuda {
namespace {

// Margin below which the chosen tokens may differ: one of the two implementations computes weights
// and their sums in float32.
constexpr double kRounding = 3e-6;
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

using Random = std::mt19937_64;

template <class T, size_t kCount>
T Pick(Random& random, const T (&values)[kCount]) {
  return values[random() % kCount];
}

// The rows of one launch.
struct Batch {
  int32_t vocabulary = 0;
  int32_t padded = 0;
  int64_t stride = 0;
  std::vector<float> logits;
  std::vector<SamplingParams> params;
  std::vector<std::vector<TokenId>> tokens;  // prompt, output and banned of each row
  std::vector<SamplingRow> rows;
};

std::vector<TokenId> RandomTokens(Random& random, int32_t vocabulary, size_t most) {
  std::vector<TokenId> tokens(random() % (most + 1));
  // Some of the tokens are outside the vocabulary.
  for (TokenId& token : tokens) {
    token = static_cast<TokenId>(random() % static_cast<uint64_t>(vocabulary + 3)) - 1;
  }
  return tokens;
}

SamplingParams RandomParams(Random& random, int32_t vocabulary) {
  SamplingParams params;
  params.temperature = Pick(random, {0.0f, 0.2f, 1.0f, 1.0f, 2.0f, 100.0f});
  params.top_k = Pick(random, {0, 0, 1, 2, 10, 100, 4999, 30000});
  params.top_p = Pick(random, {1.0f, 1.0f, 0.9f, 0.5f, 0.99f, 1e-6f});
  params.min_p = Pick(random, {0.0f, 0.0f, 0.1f, 0.5f, 1.0f});
  params.repetition_penalty = Pick(random, {1.0f, 1.0f, 1.3f});
  params.presence_penalty = Pick(random, {0.0f, 0.0f, 0.5f});
  params.frequency_penalty = Pick(random, {0.0f, 0.0f, 0.25f});
  params.seed = random();
  params.top_logprobs = Pick(random, {-1, -1, 0, 1, 5, 40});
  for (const TokenId token : RandomTokens(random, vocabulary, 20)) {
    params.logit_bias.emplace_back(token, static_cast<float>(token % 7) - 3.0f);
  }
  return params;
}

Batch RandomBatch(uint64_t seed) {
  Random random(seed);
  Batch batch;
  batch.vocabulary = Pick(random, {1, 3, 37, 1000, 5001, 20000, 128256, 262144, 524288});
  const size_t count = 1 + random() % 4;
  batch.padded = static_cast<int32_t>(count + random() % 3);
  batch.stride = batch.vocabulary + static_cast<int64_t>(random() % 9);
  batch.logits.resize(static_cast<size_t>(batch.stride * batch.padded));
  std::normal_distribution<float> normal(0.0f, Pick(random, {0.0f, 0.3f, 1.0f, 3.0f, 10.0f}));
  const bool coarse = random() % 2 == 0;  // many equal logits
  for (float& logit : batch.logits) {
    logit = normal(random);
    if (coarse) logit = std::round(logit * 8) / 8;
    if (random() % 50 == 0) logit = Pick(random, {kNan, -kInfinity});
  }
  for (size_t i = 0; i < count; ++i) {
    const auto at = random() % static_cast<uint64_t>(batch.vocabulary);
    batch.logits[i * static_cast<size_t>(batch.stride) + at] = 1.0f;
    batch.params.push_back(RandomParams(random, batch.vocabulary));
    batch.tokens.push_back(RandomTokens(random, batch.vocabulary, 60));
    batch.tokens.push_back(RandomTokens(random, batch.vocabulary, 40));
    batch.tokens.push_back(RandomTokens(random, batch.vocabulary, batch.vocabulary > 3 ? 4 : 0));
  }
  for (size_t i = 0; i < count; ++i) {
    const auto* lists = &batch.tokens[3 * i];
    batch.rows.push_back({&batch.params[i], random() % 1000, lists[0], lists[1], lists[2]});
  }
  return batch;
}

class SamplingTest : public testing::Test {
 protected:
  void SetUp() override {
    int count = 0;
    if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0) {
      GTEST_SKIP() << "no GPU: sampling was NOT tested";
    }
    fixed_ = *StepBuffer::Create(256);
    lists_ = *StepBuffer::Create(64);
    sampling_ = *Sampling::Create();
  }

  // Samples `batch`. `out` gets the results of the rows, `tokens` the tokens on the device,
  // including those of padding rows.
  Status Run(const Batch& batch, std::vector<SampledToken>& out, std::vector<int32_t>& tokens) {
    SamplingPlan plan;
    for (bool fits = false; !fits;) {
      fixed_->Clear();
      lists_->Clear();
      BATON_ASSIGN_OR_RETURN(
          plan, sampling_->Plan(batch.rows, batch.padded, batch.vocabulary, *fixed_, *lists_));
      BATON_ASSIGN_OR_RETURN(const bool fixed_fits, fixed_->Fits());
      BATON_ASSIGN_OR_RETURN(const bool lists_fit, lists_->Fits());
      fits = fixed_fits && lists_fit;
    }
    const size_t bytes = batch.logits.size() * sizeof(float);
    BATON_RETURN_IF_ERROR(logits_.Reserve(bytes));
    BATON_CUDA_RETURN_IF_ERROR(
        cudaMemcpy(logits_.at(), batch.logits.data(), bytes, cudaMemcpyHostToDevice));
    BATON_CUDA_RETURN_IF_ERROR(fixed_->Upload(nullptr));
    BATON_CUDA_RETURN_IF_ERROR(lists_->Upload(nullptr));
    Tensor logits;
    logits.data = logits_.at();
    logits.rows = batch.padded;
    logits.cols = batch.vocabulary;
    logits.stride = batch.stride;
    BATON_CUDA_RETURN_IF_ERROR(sampling_->Launch(plan, logits, nullptr));
    BATON_RETURN_IF_ERROR(sampling_->Fetch(0, nullptr));
    BATON_CUDA_RETURN_IF_ERROR(cudaStreamSynchronize(nullptr));
    out.resize(batch.rows.size());
    tokens.resize(static_cast<size_t>(batch.padded));
    BATON_CUDA_RETURN_IF_ERROR(
        cudaMemcpy(tokens.data(), sampling_->tokens(), tokens.size() * 4, cudaMemcpyDeviceToHost));
    sampling_->Collect(0, out);
    return OkStatus();
  }

  std::unique_ptr<StepBuffer> fixed_;
  std::unique_ptr<StepBuffer> lists_;
  std::unique_ptr<Sampling> sampling_;
  DeviceMemory logits_;
};

// Checks the list of logprobs by sorting.
void CheckTop(std::span<const float> logits, const SampledToken& got, int32_t top) {
  std::vector<TokenId> order;
  double sum = 0;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (std::isnan(logits[i])) continue;
    order.push_back(static_cast<TokenId>(i));
    sum += std::exp(static_cast<double>(logits[i]));
  }
  const auto at = [&](TokenId token) { return logits[static_cast<size_t>(token)]; };
  std::stable_sort(order.begin(), order.end(), [&](TokenId a, TokenId b) { return at(a) > at(b); });
  ASSERT_EQ(got.top.size(), std::min(order.size(), static_cast<size_t>(top)));
  for (size_t i = 0; i < got.top.size(); ++i) {
    ASSERT_EQ(got.top[i].token, order[i]) << i;
    if (std::isinf(at(order[i]))) continue;
    ASSERT_NEAR(got.top[i].logprob, at(order[i]) - std::log(sum), 1e-4) << i;
  }
}

TEST_F(SamplingTest, AgreesWithSorting) {
  int checked = 0;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    const Batch batch = RandomBatch(seed);
    std::vector<SampledToken> got;
    std::vector<int32_t> tokens;
    const Status status = Run(batch, got, tokens);
    ASSERT_TRUE(status.ok()) << status;
    for (size_t i = 0; i < tokens.size(); ++i) {
      if (i < got.size() && got[i].token == kNoToken) continue;
      ASSERT_EQ(tokens[i], i < got.size() ? got[i].token : 0) << "seed " << seed << ", row " << i;
    }
    for (size_t i = 0; i < got.size(); ++i) {
      // The banned tokens may be the whole vocabulary.
      if (got[i].token == kNoToken) continue;
      SCOPED_TRACE(fmt::format("seed {}, row {}", seed, i));
      const std::span<const float> row(batch.logits.data() + i * static_cast<size_t>(batch.stride),
                                       static_cast<size_t>(batch.vocabulary));
      const parity::ReferenceToken want = parity::ReferenceSample(row, batch.rows[i]);
      if (want.margin > kRounding) {
        EXPECT_EQ(got[i].token, want.token) << "margin " << want.margin;
        ++checked;
      }
      const int32_t top = batch.params[i].top_logprobs;
      if (top < 0) continue;
      CheckTop(row, got[i], top);
      if (got[i].token != want.token) continue;
      EXPECT_NEAR(got[i].logprob, want.logprob, 1e-4);
    }
  }
  EXPECT_GT(checked, 300);
}

TEST_F(SamplingTest, ARowIsTheSameInAnyBatch) {
  // A single row of a large vocabulary is divided into more ranges than a row of a batch.
  Random random(9);
  std::normal_distribution<float> normal(0.0f, 0.5f);
  Batch many;
  many.vocabulary = 128256;
  many.padded = 300;
  many.stride = many.vocabulary;
  SamplingParams params;
  params.seed = 4;
  std::vector<float> row(static_cast<size_t>(many.vocabulary));
  for (float& logit : row) logit = normal(random);
  for (int32_t i = 0; i < many.padded; ++i) {
    many.logits.insert(many.logits.end(), row.begin(), row.end());
    many.rows.push_back({&params, static_cast<uint64_t>(i), {}, {}, {}});
  }
  for (const float top_p : {1.0f, 0.99f}) {
    params.top_p = top_p;
    std::vector<SampledToken> together;
    std::vector<int32_t> tokens;
    ASSERT_TRUE(Run(many, together, tokens).ok());
    for (size_t i = 0; i < together.size(); i += 23) {
      Batch one = many;
      one.padded = 1;
      one.logits = row;
      one.rows = {many.rows[i]};
      std::vector<SampledToken> alone;
      ASSERT_TRUE(Run(one, alone, tokens).ok());
      EXPECT_EQ(alone[0].token, together[i].token) << i;
    }
  }
}

TEST_F(SamplingTest, RefusesWhatItCannotHold) {
  SamplingParams params;
  const std::vector<SamplingRow> rows = {{&params, 0, {}, {}, {}}};
  EXPECT_EQ(sampling_->Plan(rows, 1, kMaxVocabulary + 1, *fixed_, *lists_).status().code(),
            StatusCode::kInvalidArgument);
  params.top_logprobs = kMaxCandidates + 1;
  EXPECT_EQ(sampling_->Plan(rows, 1, kMaxVocabulary, *fixed_, *lists_).status().code(),
            StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace baton::cuda
