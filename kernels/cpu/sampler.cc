#include "kernels/cpu/sampler.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "kernels/cpu/half.h"
#include "kernels/token_mask.h"

namespace baton::cpu {
namespace {

constexpr float kLowest = -std::numeric_limits<float>::infinity();
constexpr double kAllMass = std::numeric_limits<double>::infinity();
constexpr int kBucketBits = 12;

bool InRange(TokenId token, std::span<const float> logits) {
  return token >= 0 && static_cast<size_t>(token) < logits.size();
}

// The top kBucketBits bits of an integer that has the same order as the float.
uint32_t Bucket(float value) {
  const uint32_t bits = BitsOfFloat(value + 0.0f);  // −0 counts as 0
  const uint32_t ordered = (bits & 0x80000000) != 0 ? ~bits : bits | 0x80000000;
  return ordered >> (32 - kBucketBits);
}

}  // namespace

void Sampler::Choose(std::span<float> logits, const SamplingRow& row, SampledToken& out) {
  const SamplingParams& params = *row.params;
  const auto size = static_cast<int64_t>(logits.size());
  out = {};
  const bool wants_logprobs = params.top_logprobs >= 0;
  if (wants_logprobs) copy_.assign(logits.begin(), logits.end());
  if (row.forced != kNoToken) {
    out.token = row.forced;
    if (wants_logprobs) Logprobs(copy_, params.top_logprobs, out);
    return;
  }
  ApplyBias(logits, row);
  ApplyPenalties(logits, row);
  const int64_t best = kernels_->arg_max(logits.data(), size);
  if (best < 0 || logits[static_cast<size_t>(best)] == kLowest) {
    out.token = kNoToken;
    return;
  }
  const float maximum = logits[static_cast<size_t>(best)];
  // Next to a logit of +∞ all other tokens have probability 0.
  const bool greedy = params.temperature == 0 || maximum > std::numeric_limits<float>::max();
  out.token = greedy ? static_cast<TokenId>(best) : Draw(logits, maximum, row);
  if (wants_logprobs) Logprobs(copy_, params.top_logprobs, out);
}

void Sampler::Logprobs(std::span<const float> logits, int32_t top, SampledToken& out) {
  Best(logits, std::max<size_t>(1, static_cast<size_t>(top)), kAllMass);
  const float maximum = candidates_.empty() ? kLowest : candidates_.front().value;
  double sum = 0;
  const float chosen = logits[static_cast<size_t>(out.token)];
  for (float& logit : copy_) {
    if (std::isnan(logit)) logit = kLowest;
  }
  // `logits` is a view of copy_, which exp_sum overwrites. So everything is read from it before.
  sum = kernels_->exp_sum(copy_.data(), static_cast<int64_t>(copy_.size()), 1.0f, maximum);
  const double log_sum = std::log(sum);
  const auto logprob = [&](float logit) {
    return static_cast<float>(static_cast<double>(logit) - maximum - log_sum);
  };
  out.logprob = logprob(chosen);
  const auto wanted = std::min(static_cast<size_t>(top), candidates_.size());
  for (size_t i = 0; i < wanted; ++i) {
    out.top.push_back({candidates_[i].token, logprob(candidates_[i].value)});
  }
}

void Sampler::ApplyBias(std::span<float> logits, const SamplingRow& row) {
  for (const auto& [token, bias] : row.params->logit_bias) {
    if (InRange(token, logits)) logits[static_cast<size_t>(token)] += bias;
  }
  for (const TokenId token : row.banned) {
    if (InRange(token, logits)) logits[static_cast<size_t>(token)] = kLowest;
  }
  if (row.mask != nullptr) ApplyMask(logits, row.mask->allowed());
}

void Sampler::ApplyMask(std::span<float> logits, std::span<const uint32_t> allowed) {
  constexpr size_t kBits = 32;
  for (size_t word = 0; word < allowed.size(); ++word) {
    const size_t first = word * kBits;
    const auto row = logits.subspan(first, std::min(kBits, logits.size() - first));
    const uint32_t bits = allowed[word];
    if (bits == 0) {
      std::ranges::fill(row, kLowest);
    } else if (bits != ~uint32_t{0}) {
      for (size_t i = 0; i < row.size(); ++i) {
        if ((bits >> i & 1) == 0) row[i] = kLowest;
      }
    }
  }
}

void Sampler::ApplyPenalties(std::span<float> logits, const SamplingRow& row) {
  const SamplingParams& params = *row.params;
  const bool repetition = params.repetition_penalty != 1.0f;
  const bool output = params.presence_penalty != 0 || params.frequency_penalty != 0;
  if (!repetition && !output) return;
  // Occurrences in the output; −1 marks a token whose penalties are already applied.
  counts_.resize(std::max(counts_.size(), logits.size()), 0);
  const auto repeat = [&](TokenId token) {
    if (!repetition) return;
    float& logit = logits[static_cast<size_t>(token)];
    logit = logit > 0 ? logit / params.repetition_penalty : logit * params.repetition_penalty;
  };
  for (const TokenId token : row.output) {
    if (InRange(token, logits) && counts_[static_cast<size_t>(token)]++ == 0) repeat(token);
  }
  for (const TokenId token : row.output) {
    if (!InRange(token, logits)) continue;
    int32_t& count = counts_[static_cast<size_t>(token)];
    if (count <= 0) continue;
    logits[static_cast<size_t>(token)] -=
        params.presence_penalty + params.frequency_penalty * static_cast<float>(count);
    count = -1;
  }
  for (const TokenId token : row.prompt) {
    if (!InRange(token, logits) || counts_[static_cast<size_t>(token)] != 0) continue;
    counts_[static_cast<size_t>(token)] = -1;
    repeat(token);
  }
  for (const std::span<const TokenId> tokens : {row.output, row.prompt}) {
    for (const TokenId token : tokens) {
      if (InRange(token, logits)) counts_[static_cast<size_t>(token)] = 0;
    }
  }
}

TokenId Sampler::Draw(std::span<float> logits, float maximum, const SamplingRow& row) {
  const SamplingParams& params = *row.params;
  for (float& logit : logits) {
    // Subtracts the maximum before the scaling, so that a tiny temperature cannot overflow.
    logit = std::isnan(logit) ? kLowest : logit - maximum;
  }
  const float scale = std::min(1.0f / params.temperature, 1e30f);
  const double draw = UniformDraw(params.seed, row.position);
  const auto size = static_cast<int64_t>(logits.size());
  const double sum = kernels_->exp_sum(logits.data(), size, scale, 0.0f);
  if (params.top_k > 0 || params.top_p < 1.0f) return DrawFromBest(logits, sum, row, draw);
  return DrawInOrder(logits, params.min_p, draw);
}

TokenId Sampler::DrawInOrder(std::span<const float> weights, float least, double draw) {
  double sum = 0;
  for (const float weight : weights) sum += weight >= least ? static_cast<double>(weight) : 0.0;
  const double wanted = draw * sum;
  double reached = 0;
  size_t last = 0;
  for (size_t i = 0; i < weights.size(); ++i) {
    if (weights[i] < least || weights[i] <= 0) continue;
    reached += static_cast<double>(weights[i]);
    last = i;
    if (reached > wanted) break;
  }
  return static_cast<TokenId>(last);
}

TokenId Sampler::DrawFromBest(std::span<const float> weights,
                              double sum,
                              const SamplingRow& row,
                              double draw) {
  const SamplingParams& params = *row.params;
  const size_t top_k = params.top_k > 0 ? static_cast<size_t>(params.top_k) : weights.size();
  const auto top_p = static_cast<double>(params.top_p);
  if (top_k < weights.size()) {
    Best(weights, top_k, kAllMass);
    sum = 0;
    for (const Candidate& candidate : candidates_) sum += static_cast<double>(candidate.value);
  } else {
    Best(weights, weights.size(), top_p < 1 ? top_p * sum : kAllMass);
  }
  // Applies top-p to the tokens that top-k kept, then min-p, and draws among the rest.
  size_t kept = 0;
  double mass = 0;
  while (kept < candidates_.size() && (kept == 0 || mass < top_p * sum)) {
    if (candidates_[kept].value < params.min_p || candidates_[kept].value <= 0) break;
    mass += static_cast<double>(candidates_[kept++].value);
  }
  double reached = 0;
  for (size_t i = 0; i < kept; ++i) {
    reached += static_cast<double>(candidates_[i].value);
    if (reached > draw * mass) return candidates_[i].token;
  }
  return candidates_[kept == 0 ? 0 : kept - 1].token;
}

void Sampler::Best(std::span<const float> values, size_t count, double mass) {
  constexpr size_t kBuckets = size_t{1} << kBucketBits;
  bucket_counts_.assign(kBuckets, 0);
  const bool by_mass = mass != kAllMass;
  if (by_mass) bucket_mass_.assign(kBuckets, 0);
  for (const float value : values) {
    if (std::isnan(value)) continue;
    const uint32_t bucket = Bucket(value);
    ++bucket_counts_[bucket];
    if (by_mass) bucket_mass_[bucket] += static_cast<double>(value);
  }
  // The lowest bucket that can contain one of the wanted values.
  size_t bucket = kBuckets;
  size_t seen = 0;
  double reached = 0;
  while (bucket > 0 && seen < count && (!by_mass || reached < mass)) {
    --bucket;
    seen += bucket_counts_[bucket];
    if (by_mass) reached += bucket_mass_[bucket];
  }
  candidates_.clear();
  for (size_t i = 0; i < values.size(); ++i) {
    if (!std::isnan(values[i]) && Bucket(values[i]) >= bucket) {
      candidates_.push_back({values[i], static_cast<TokenId>(i)});
    }
  }
  const auto before = [](const Candidate& a, const Candidate& b) {
    return a.value != b.value ? a.value > b.value : a.token < b.token;
  };
  if (count < candidates_.size()) {
    std::partial_sort(candidates_.begin(),
                      candidates_.begin() + static_cast<ptrdiff_t>(count),
                      candidates_.end(),
                      before);
    candidates_.resize(count);
    return;
  }
  std::sort(candidates_.begin(), candidates_.end(), before);
}

}  // namespace baton::cpu
