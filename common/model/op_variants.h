#pragma once

#include <vector>

#include "common/model/model_spec.h"
#include "common/model/rank_plan.h"
#include "kernels/model_shape.h"

namespace baton {

// What the graphs of the model need of a backend besides the ops that every family uses.
std::vector<OpVariant> VariantsOf(const ModelSpec& spec);

// What a backend's Ops::CheckModel reads of the part of the model that a rank holds.
ModelShape ModelShapeOf(const ModelSpec& spec, const RankPlan& plan, bool fp8_kv);

}  // namespace baton
