#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "kernels/tensor.h"

namespace baton {

// What an expert's logit becomes before experts are chosen.
enum class RouterScore : uint8_t {
  kSoftmax,  // over all experts
  kSigmoid,
  kSigmoidOfLogits,  // kSigmoid, but experts are chosen by their logits
};

// How good a group of experts is.
enum class GroupScore : uint8_t {
  kBestTwo,  // the sum of the scores of its two best experts
  kBest,     // the score of its best expert
};

// How a row chooses its experts by the logits of the router. All in float32.
struct RouterArgs {
  RouterScore score = RouterScore::kSoftmax;
  float scale = 1;               // multiplies the weights of the chosen experts
  bool weighted_inputs = false;  // an expert's weight multiplies its input in place of its output
  // Weights that are scaled to sum to 1 are divided by the sum of the scores, or by this if the sum
  // is smaller.
  float least_sum = 0;
  // [experts]: added to the scores when experts are chosen, but not to their weights. Null: none.
  const Vector* selection_bias = nullptr;
  // Experts in `groups` equal groups of consecutive ones: only experts of the best
  // `groups_per_token` groups are chosen.
  int32_t groups = 1;
  int32_t groups_per_token = 1;
  GroupScore group_score = GroupScore::kBestTwo;
};

// What an expert makes of its products g = gate x and u = up x. Without a limit: silu(g) · u. With
// one: g' · sigmoid(alpha · g') · (u' + 1), where g' = min(g, limit), and u' is u kept within
// ±limit. Ungated experts have no products g, and make max(u, 0)² of u.
struct ExpertGate {
  float limit = 0;  // 0: none
  float alpha = 1;
  bool ungated = false;

  bool operator==(const ExpertGate&) const = default;
};

// The experts of one mixture-of-experts layer. Row r of `router` scores expert r.
struct ExpertArgs {
  const Matrix* router = nullptr;  // [experts][hidden]
  // Per held expert [2·intermediate][hidden]; of ungated experts only up: [intermediate][hidden].
  std::span<const std::unique_ptr<Matrix>> gate_up;
  std::span<const std::unique_ptr<Matrix>> down;  // per held expert [hidden][intermediate]
  int32_t experts_per_token = 0;
  bool normalize = true;  // chosen experts' weights are scaled to sum to 1
  // Tensor rank r holds experts rank_ends[r − 1] … rank_ends[r] − 1 (from 0 on for rank 0). Empty:
  // every rank holds all experts.
  std::span<const int32_t> rank_ends = {};
  RouterArgs routing = {};
  ExpertGate gate = {};  // with a limit: OpVariant::kClampedGate; ungated: kUngatedExperts
  // What is added to products (OpVariant::kExpertBias): to the logits of the router; to gate and
  // up, and to down, of each held expert, before the expert is weighted. Null or empty: nothing.
  const Vector* router_bias = nullptr;                         // [experts]
  std::span<const std::unique_ptr<Vector>> gate_up_bias = {};  // [gate | up]
  std::span<const std::unique_ptr<Vector>> down_bias = {};     // [hidden]
};

}  // namespace baton
