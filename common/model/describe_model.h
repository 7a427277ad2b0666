#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "common/model/open_model.h"

namespace baton {

struct DescriptionLine {
  std::string label;
  std::string value;
};

// A model for people: what `baton model inspect` prints.
struct ModelDescription {
  std::vector<DescriptionLine> lines;  // name, shape, position embedding, KV bytes a token, …
  std::vector<TensorInfo> tensors;     // file order; empty for dummy weights
  size_t tensor_bytes = 0;
};

ModelDescription DescribeModel(const OpenedModel& model);

// Once a model's weights were loaded: a line for each kind of tensor in its files that nothing has
// read (whole layers, biases), since the files then hold more than what runs.
std::vector<std::string> DescribeUnread(const ModelSpec& spec, const WeightSource& weights);

}  // namespace baton
