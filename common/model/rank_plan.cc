#include "common/model/rank_plan.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <string>
#include <utility>

#include "common/base/check.h"
#include "common/model/cache_layers.h"
#include "kernels/expert_parts.h"

namespace baton {
namespace {

// Packed matrices are stored in panels of this many rows.
constexpr int64_t kRowMultiple = 16;

// `size` divided into `ranks` ranges whose borders are multiples of the largest power of two up to
// kRowMultiple that leaves every rank at least one.
std::vector<int64_t> Divide(int64_t size, int64_t ranks) {
  int64_t multiple = kRowMultiple;
  while (multiple > 1 && size / multiple < ranks) multiple /= 2;
  std::vector<int64_t> ends;
  for (int64_t rank = 1; rank <= ranks; ++rank) {
    ends.push_back(size / multiple * rank / ranks * multiple);
  }
  ends.back() = size;
  return ends;
}

IndexRange RangeOf(std::span<const int64_t> ends, int32_t rank) {
  const auto index = static_cast<size_t>(rank);
  return {rank == 0 ? 0 : ends[index - 1], ends[index]};
}

// The experts' ends of all ranks, in whole parts.
std::vector<int32_t> DivideExperts(int32_t experts, int32_t ranks) {
  std::vector<int32_t> ends;
  for (int32_t rank = 1; rank <= ranks; ++rank) {
    ends.push_back(FirstOfPart(experts, ExpertParts(experts) * rank / ranks));
  }
  return ends;
}

bool HasDense(const ModelSpec& spec) {
  return std::ranges::any_of(spec.layers,
                             [](const LayerSpec& l) { return l.feed_forward && !l.moe; });
}
bool HasExperts(const ModelSpec& spec) {
  return std::ranges::any_of(spec.layers, &LayerSpec::moe);
}

int32_t SharedWidth(const ModelSpec& spec) {
  return HasExperts(spec) ? spec.moe.shared_intermediate : 0;
}

// Whether the ranks can divide a feed-forward network of this width.
bool CanDivideWidth(int32_t width, int32_t ranks, ExchangeMode mode) {
  return ranks <= width && (mode == ExchangeMode::kGather || width % ranks == 0);
}

// Whether the key heads of each rank are whole lists of key heads that are alike, or part of one.
bool CanDivideKeys(const RecurrentShape& shape, int32_t ranks) {
  const int32_t held = shape.key_heads / ranks;
  return held % shape.key_copies == 0 || shape.key_copies % held == 0;
}

bool CanDivide(const ModelSpec& spec, int32_t ranks, ExchangeMode mode) {
  const bool whole_kv_heads = spec.kv_heads % ranks == 0;
  const bool copied_kv_heads = ranks % spec.kv_heads == 0 && spec.heads % ranks == 0;
  if (!whole_kv_heads && !copied_kv_heads) return false;
  // Copies of a KV head would need copies of the states that go with it.
  if (!whole_kv_heads && spec.state_layers() > 0) return false;
  if (spec.state_layers() > 0 && !CanDivideKeys(spec.recurrent.shape, ranks)) return false;
  if (ranks > spec.vocab || ranks > spec.hidden) return false;
  if (HasDense(spec) && !CanDivideWidth(spec.intermediate, ranks, mode)) return false;
  const int32_t shared = SharedWidth(spec);
  if (shared > 0 && !CanDivideWidth(shared, ranks, mode)) return false;
  return !HasExperts(spec) || ranks <= ExpertParts(spec.moe.experts);
}

Status CheckDegrees(const ModelSpec& spec, const RankPlace& place, ExchangeMode mode) {
  const auto mixers = static_cast<int32_t>(std::ranges::count_if(spec.layers, &LayerSpec::mixes));
  if (place.pipeline_parallel < 1 || place.pipeline_parallel > mixers) {
    return InvalidArgument(
        "pipeline_parallel is {}; the model has {} layers{}, so it must be between 1 and {}",
        place.pipeline_parallel,
        mixers,
        mixers < spec.layer_count() ? " with attention or a state" : "",
        mixers);
  }
  if (place.tensor_parallel >= 1 && CanDivide(spec, place.tensor_parallel, mode)) return OkStatus();
  std::vector<int32_t> degrees;
  for (int32_t ranks = 1; ranks <= spec.heads; ++ranks) {
    if (CanDivide(spec, ranks, mode)) degrees.push_back(ranks);
  }
  std::string sizes = spec.latent_attention()
                          ? fmt::format("{} heads", spec.heads)
                          : fmt::format("{} heads and {} KV heads", spec.heads, spec.kv_heads);
  if (HasDense(spec)) sizes += fmt::format(", intermediate size {}", spec.intermediate);
  if (HasExperts(spec)) sizes += fmt::format(", {} experts", spec.moe.experts);
  if (SharedWidth(spec) > 0) sizes += fmt::format(", a shared expert of {}", SharedWidth(spec));
  return InvalidArgument("tensor_parallel is {}; for a model with {} it must be one of {}",
                         place.tensor_parallel,
                         sizes,
                         fmt::join(degrees, ", "));
}

// Fills in everything that the tensor-parallel ranks of a stage divide.
void DivideTensors(const ModelSpec& spec, RankPlan& plan) {
  const int32_t ranks = plan.place.tensor_parallel;
  const int32_t rank = plan.place.tensor_rank;
  const int32_t q_heads = spec.heads / ranks;
  const int32_t kv_heads = std::max(1, spec.kv_heads / ranks);
  const IndexRange q{int64_t{rank} * q_heads, int64_t{rank + 1} * q_heads};
  const int64_t first_kv = q.begin * spec.kv_heads / spec.heads;
  plan.heads = {q_heads, kv_heads, spec.head_dim};
  plan.slice.heads = q;
  plan.slice.kv_heads = IndexRange{first_kv, first_kv + kv_heads};
  plan.ends.vocab = Divide(spec.vocab, ranks);
  plan.slice.vocab = RangeOf(plan.ends.vocab, rank);
  if (plan.mode == ExchangeMode::kGather) {
    for (int32_t r = 1; r <= ranks; ++r) {
      plan.ends.attention.push_back(int64_t{r} * q_heads * spec.output_head_dim());
      const RecurrentShape& recurrent = spec.recurrent.shape;
      plan.ends.recurrent.push_back(int64_t{r} * (recurrent.value_heads / ranks) *
                                    recurrent.value_dim);
    }
    plan.ends.hidden = Divide(spec.hidden, ranks);
    plan.slice.hidden = RangeOf(plan.ends.hidden, rank);
  }
  // Returns the rank's range of a feed-forward network, whose columns are gathered at `gathered`.
  const auto divide_width = [&](int32_t width, std::vector<int64_t>& gathered) {
    std::vector<int64_t> ends = Divide(width, ranks);
    if (plan.mode == ExchangeMode::kReduce) {
      for (int32_t r = 1; r <= ranks; ++r) ends[r - 1] = int64_t{width} * r / ranks;
    }
    const IndexRange range = RangeOf(ends, rank);
    if (plan.mode == ExchangeMode::kGather) gathered = std::move(ends);
    return range;
  };
  if (HasDense(spec)) {
    plan.slice.intermediate = divide_width(spec.intermediate, plan.ends.feed_forward);
  }
  if (SharedWidth(spec) > 0) {
    plan.slice.shared_intermediate = divide_width(SharedWidth(spec), plan.ends.shared);
  }
  if (HasExperts(spec)) {
    plan.expert_ends = DivideExperts(spec.moe.experts, ranks);
    plan.slice.experts =
        IndexRange{rank == 0 ? 0 : plan.expert_ends[rank - 1], plan.expert_ends[rank]};
  }
}

// The first layer after each stage. A layer without attention and state is in the stage of the
// layer before it, because each stage keeps something of a sequence.
std::vector<int32_t> DivideStages(const ModelSpec& spec, LayerCosts costs, int32_t stages) {
  std::vector<int32_t> ends;  // of the layers that stay together
  std::vector<double> together;
  for (int32_t i = 0; i < spec.layer_count(); ++i) {
    const bool begins = spec.layers[i].mixes() && CacheLayersBefore(spec, i) > 0;
    if (together.empty() || begins) {
      ends.push_back(i);
      together.push_back(0);
    }
    ends.back() = i + 1;
    together.back() += costs.layers[i];
  }
  costs.layers = std::move(together);
  std::vector<int32_t> layers;
  for (const int32_t end : DivideLayers(costs, stages)) layers.push_back(ends[end - 1]);
  return layers;
}

}  // namespace

StatusOr<RankPlan> MakeRankPlan(const ModelSpec& spec,
                                const RankPlace& place,
                                ExchangeMode mode,
                                StageBalance balance) {
  BATON_RETURN_IF_ERROR(CheckDegrees(spec, place, mode));
  BATON_CHECK(place.tensor_rank >= 0 && place.tensor_rank < place.tensor_parallel &&
                  place.stage >= 0 && place.stage < place.pipeline_parallel,
              "tensor rank {} of {}, stage {} of {}",
              place.tensor_rank,
              place.tensor_parallel,
              place.stage,
              place.pipeline_parallel);
  RankPlan plan;
  plan.place = place;
  plan.mode = mode;
  plan.heads = spec.head_shape();
  if (plan.tensor_parallel()) DivideTensors(spec, plan);
  const bool decodes = balance == StageBalance::kDecodes;
  const auto ends =
      DivideStages(spec, decodes ? DecodeCosts(spec) : PromptCosts(spec), place.pipeline_parallel);
  const auto stage = static_cast<size_t>(place.stage);
  plan.layers = {stage == 0 ? 0 : ends[stage - 1], ends[stage]};
  plan.slice.layers = plan.layers;
  // Every rank has the whole latent.
  const bool has_heads = !spec.latent_attention() || spec.state_layers() > 0;
  const IndexRange whole{0, has_heads ? spec.kv_heads : 0};
  const IndexRange kv = has_heads ? plan.slice.kv_heads.value_or(whole) : whole;
  const int32_t first_layer = CacheLayersBefore(spec, static_cast<int32_t>(plan.layers.begin));
  const int32_t end_layer = CacheLayersBefore(spec, static_cast<int32_t>(plan.layers.end));
  plan.kv_shard = {.first_layer = first_layer,
                   .layer_count = end_layer - first_layer,
                   .first_head = static_cast<int32_t>(kv.begin),
                   .head_count = static_cast<int32_t>(kv.size())};
  return plan;
}

namespace {

// The weights of a recurrent layer that are not vectors.
double RecurrentWeightCount(const ModelSpec& spec) {
  const RecurrentShape& shape = spec.recurrent.shape;
  const double hidden = spec.hidden;
  const auto outputs = static_cast<double>(shape.value_numbers());
  const auto inputs = static_cast<double>(shape.input_columns());
  const auto gates = static_cast<double>(shape.gate_columns());
  const double rank = spec.recurrent.latent_rank;
  switch (shape.rule) {
    case RecurrentRule::kDelta:
    case RecurrentRule::kStateSpace:
      break;
    case RecurrentRule::kChannelDelta:
      return hidden * (inputs + outputs + 2 * rank) + rank * (gates + outputs);
    case RecurrentRule::kSelectiveScan:
      return hidden * 3 * outputs + outputs * (2 * rank + 2.0 * shape.key_dim);
  }
  return hidden * (inputs + gates + outputs);
}

// The weights of attention in a layer.
double AttentionWeights(const ModelSpec& spec) {
  const double hidden = spec.hidden;
  if (!spec.latent_attention()) {
    const double gates = spec.attention_gate ? spec.heads : 0.0;
    return hidden * spec.head_dim * (2.0 * spec.heads + 2.0 * spec.kv_heads + gates);
  }
  const LatentSpec& latent = spec.latent;
  const double heads = spec.heads;
  const double q_inputs = latent.q_rank > 0 ? latent.q_rank : hidden;
  const IndexShape& index = latent.index;
  const double indexed =
      hidden * (index.dim + index.heads) + double{1} * latent.q_rank * index.heads * index.dim;
  return indexed + hidden * (latent.q_rank + latent.width()) + q_inputs * heads * spec.head_dim +
         heads * latent.rank * (latent.nope_dim + latent.value_dim) +
         heads * latent.value_dim * hidden;
}

}  // namespace

LayerCosts DecodeCosts(const ModelSpec& spec) {
  const double hidden = spec.hidden;
  const double attention = AttentionWeights(spec);
  const double recurrent = spec.state_layers() > 0 ? RecurrentWeightCount(spec) : 0;
  LayerCosts costs;
  for (const LayerSpec& layer : spec.layers) {
    const MoeSpec& moe = spec.moe;
    double width = spec.intermediate;
    if (layer.moe) {
      width = double{1} * moe.experts_per_token * moe.intermediate + moe.shared_intermediate;
    }
    if (!layer.feed_forward) width = 0;
    costs.layers.push_back((layer.attention ? attention : 0) + (layer.state ? recurrent : 0) +
                           (spec.gated() ? 3 : 2) * hidden * width);
  }
  costs.last = hidden * spec.vocab;
  return costs;
}

// A token's operations in a layer are twice the weights that it reads.
LayerCosts PromptCosts(const ModelSpec& spec) {
  LayerCosts costs = DecodeCosts(spec);
  costs.last = 0;
  return costs;
}

std::vector<int32_t> DivideLayers(const LayerCosts& costs, int32_t stages) {
  const auto layers = static_cast<int32_t>(costs.layers.size());
  BATON_CHECK(stages >= 1 && stages <= layers, "{} stages of {} layers", stages, layers);
  std::vector<double> before(1, 0);  // cost of the layers before each layer
  for (const double cost : costs.layers) before.push_back(before.back() + cost);
  // slowest[s][n]: the slowest of the first s + 1 stages, when these have the first n layers.
  constexpr double kUnreachable = std::numeric_limits<double>::infinity();
  std::vector<std::vector<double>> slowest(stages, std::vector<double>(layers + 1, kUnreachable));
  std::vector<std::vector<int32_t>> begin(stages, std::vector<int32_t>(layers + 1, 0));
  for (int32_t stage = 0; stage < stages; ++stage) {
    const double extra = (stage == 0 ? costs.first : 0) + (stage + 1 == stages ? costs.last : 0);
    for (int32_t end = stage + 1; end <= layers; ++end) {
      const int32_t earliest = stage;
      const int32_t latest = stage == 0 ? 0 : end - 1;
      for (int32_t from = earliest; from <= latest; ++from) {
        const double earlier = stage == 0 ? 0 : slowest[stage - 1][from];
        const double cost = std::max(earlier, before[end] - before[from] + extra);
        if (cost >= slowest[stage][end]) continue;
        slowest[stage][end] = cost;
        begin[stage][end] = from;
      }
    }
  }
  std::vector<int32_t> ends(stages);
  int32_t end = layers;
  for (int32_t stage = stages; stage-- > 0; end = begin[stage][end]) ends[stage] = end;
  return ends;
}

}  // namespace baton
