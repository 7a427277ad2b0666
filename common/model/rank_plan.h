#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/base/status.h"
#include "common/kvcache/layout.h"
#include "common/model/decoder_slice.h"
#include "common/model/model_spec.h"
#include "kernels/exchange.h"

namespace baton {

// For each activation that the tensor-parallel ranks compute together: the first column after the
// columns of each rank, in the order of the ranks. Empty: the activation is not gathered.
struct ColumnEnds {
  std::vector<int64_t> attention;     // of heads · output_head_dim()
  std::vector<int64_t> recurrent;     // of the value heads · value dimension of recurrent layers
  std::vector<int64_t> hidden;        // outputs of attention output and of down
  std::vector<int64_t> feed_forward;  // of the intermediate size
  std::vector<int64_t> shared;        // of the intermediate size of the shared expert
  std::vector<int64_t> vocab;
};

// The part of a model that one rank holds, and how it exchanges activations with the other ranks.
// Plain data. The plan of a group of one rank has the whole model and no exchange.
struct RankPlan {
  RankPlace place;
  ExchangeMode mode = ExchangeMode::kGather;
  IndexRange layers;
  HeadShape heads;  // of this rank
  DecoderSlice slice;
  ColumnEnds ends;
  std::vector<int32_t> expert_ends;  // ExpertArgs::rank_ends
  KvShard kv_shard;                  // of a DenseLayout

  bool first_stage() const { return place.stage == 0; }
  bool last_stage() const { return place.stage + 1 == place.pipeline_parallel; }
  bool tensor_parallel() const { return place.tensor_parallel > 1; }
};

// The steps for which the stages of a pipeline take equally long.
enum class StageBalance { kDecodes, kPrompts };

// The plan of the rank at `place`. Query heads and their KV heads are divided equally; when there
// are more ranks than KV heads, several ranks have a copy of a KV head. kGather divides everything
// else in multiples of 16 rows where the size allows it; kReduce divides the intermediate size
// equally. Experts are divided in whole parts (expert_parts.h). Each stage has a layer with
// attention or a state. Errors: InvalidArgument naming the degree, the model's sizes and the
// degrees that are possible.
StatusOr<RankPlan> MakeRankPlan(const ModelSpec& spec,
                                const RankPlace& place,
                                ExchangeMode mode,
                                StageBalance balance = StageBalance::kDecodes);

// The time that a step takes on each part of a model, in any unit.
struct LayerCosts {
  std::vector<double> layers;
  double first = 0;  // the first stage has this cost in addition to its layers' (embedding)
  double last = 0;   // the last stage (output head)
};

// The costs of decoding, which is bound by reading weights: bytes of a layer that a token reads,
// all layers of one kind alike. The embedding costs nothing, because a token reads one row of it.
LayerCosts DecodeCosts(const ModelSpec& spec);
// The costs of prompts, which are bound by operations: those of a token. Few tokens pass the output
// head.
LayerCosts PromptCosts(const ModelSpec& spec);

// The first layer after each of `stages` stages, so that the slowest stage is as fast as possible.
// Every stage has at least one layer; `stages` is 1 … the number of layers.
std::vector<int32_t> DivideLayers(const LayerCosts& costs, int32_t stages);

}  // namespace baton
