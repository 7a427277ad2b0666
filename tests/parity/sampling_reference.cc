#include "tests/parity/sampling_reference.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <vector>

namespace baton::parity {
namespace {

constexpr double kLowest = -std::numeric_limits<double>::infinity();

struct Candidate {
  TokenId token;
  double weight;
};

std::vector<double> Edited(std::span<const float> logits, const SamplingRow& row) {
  const SamplingParams& params = *row.params;
  std::vector<double> out;
  for (const float logit : logits) out.push_back(std::isnan(logit) ? kLowest : logit);
  const auto at = [&](TokenId token) { return &out[static_cast<size_t>(token)]; };
  const auto known = [&](TokenId token) {
    return token >= 0 && static_cast<size_t>(token) < out.size();
  };
  for (const auto& [token, bias] : params.logit_bias) {
    if (known(token)) *at(token) += bias;
  }
  for (const TokenId token : row.banned) {
    if (known(token)) *at(token) = kLowest;
  }
  std::map<TokenId, int> seen;  // occurrences in the output
  for (const TokenId token : row.prompt) seen[token] += 0;
  for (const TokenId token : row.output) ++seen[token];
  for (const auto& [token, count] : seen) {
    if (!known(token)) continue;
    double& logit = *at(token);
    const double penalty = static_cast<double>(params.repetition_penalty);
    logit = logit > 0 ? logit / penalty : logit * penalty;
    if (count == 0) continue;
    logit -= static_cast<double>(params.presence_penalty) +
             static_cast<double>(params.frequency_penalty) * count;
  }
  return out;
}

// Removes from `sorted` the candidates that top-k, top-p and min-p exclude. Returns the margin: how
// close the cuts are to a different result.
double Cut(std::vector<Candidate>& sorted, const SamplingParams& params) {
  double margin = 1;
  if (params.top_k > 0 && static_cast<size_t>(params.top_k) < sorted.size()) {
    const auto count = static_cast<size_t>(params.top_k);
    // Equal weights are ordered by id. Nearly equal weights reduce the margin.
    const double gap = sorted[count - 1].weight - sorted[count].weight;
    if (gap != 0) margin = gap / sorted[count - 1].weight;
    sorted.resize(count);
  }
  double sum = 0;
  for (const Candidate& candidate : sorted) sum += candidate.weight;
  const double wanted = static_cast<double>(params.top_p) * sum;
  double mass = 0;
  size_t kept = 0;
  while (kept < sorted.size() && (kept == 0 || params.top_p >= 1 || mass < wanted)) {
    if (kept > 0 && sorted[kept].weight < params.min_p) break;
    mass += sorted[kept++].weight;
    if (params.top_p < 1) margin = std::min(margin, std::fabs(mass - wanted) / sum);
  }
  if (params.min_p > 0) {
    for (const Candidate& candidate : sorted) {
      margin = std::min(margin, std::fabs(candidate.weight - params.min_p));
    }
  }
  sorted.resize(kept);
  return margin;
}

// Draws among `candidates` in their order. `ranked`: the order is by weight, so that two candidates
// of nearly equal weight may be in either order.
void Draw(const std::vector<Candidate>& candidates,
          double draw,
          bool ranked,
          ReferenceToken& result) {
  double sum = 0;
  for (const Candidate& candidate : candidates) sum += candidate.weight;
  double reached = 0;
  size_t i = 0;
  for (;; ++i) {
    result.margin = std::min(result.margin, std::fabs(reached / sum - draw));
    reached += candidates[i].weight;
    if (reached > draw * sum || i + 1 == candidates.size()) break;
  }
  result.margin = std::min(result.margin, std::fabs(reached / sum - draw));
  result.token = candidates[i].token;
  const auto nearly = [&](size_t a, size_t b) {
    const double gap = candidates[a].weight - candidates[b].weight;
    return gap != 0 && gap < 1e-6 * candidates[a].weight;
  };
  if (!ranked) return;
  if ((i > 0 && nearly(i - 1, i)) || (i + 1 < candidates.size() && nearly(i, i + 1))) {
    result.margin = 0;
  }
}

}  // namespace

ReferenceToken ReferenceSample(std::span<const float> logits, const SamplingRow& row) {
  const SamplingParams& params = *row.params;
  const std::vector<double> edited = Edited(logits, row);
  const auto best = std::max_element(edited.begin(), edited.end());
  ReferenceToken result;
  result.token = static_cast<TokenId>(best - edited.begin());
  if (params.temperature > 0) {
    std::vector<Candidate> candidates;
    for (size_t i = 0; i < edited.size(); ++i) {
      const double weight = std::exp((edited[i] - *best) / static_cast<double>(params.temperature));
      candidates.push_back({static_cast<TokenId>(i), weight});
    }
    const auto heavier = [](const Candidate& a, const Candidate& b) { return a.weight > b.weight; };
    std::stable_sort(candidates.begin(), candidates.end(), heavier);
    result.margin = Cut(candidates, params);
    const bool ranked = params.top_k > 0 || params.top_p < 1;
    const auto earlier = [](const Candidate& a, const Candidate& b) { return a.token < b.token; };
    if (!ranked) std::sort(candidates.begin(), candidates.end(), earlier);
    Draw(candidates, UniformDraw(params.seed, row.position), ranked, result);
  } else {
    // Penalties are rounded in float32, so a close logit may become equal to the best.
    for (size_t i = 0; i < edited.size(); ++i) {
      if (static_cast<TokenId>(i) == result.token || edited[i] == *best) continue;
      result.margin = std::min(result.margin, (*best - edited[i]) / (1 + std::fabs(*best)));
    }
  }
  double sum = 0;
  for (const float logit : logits) {
    if (!std::isnan(logit)) sum += std::exp(static_cast<double>(logit));
  }
  result.logprob = logits[static_cast<size_t>(result.token)] - std::log(sum);
  return result;
}

}  // namespace baton::parity
