#pragma once

#include <vector>

#include "common/model/model_spec.h"
#include "kernels/model_shape.h"

namespace baton {

// What the graphs of the model need of a backend besides the ops that every family uses.
std::vector<OpVariant> VariantsOf(const ModelSpec& spec);

}  // namespace baton
