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

// A readable description of a model, which `baton model inspect` prints.
struct ModelDescription {
  std::vector<DescriptionLine> lines;  // name, shape, position embedding, KV bytes per token, …
  std::vector<TensorInfo> tensors;     // in file order; empty for dummy weights
  size_t tensor_bytes = 0;
};

ModelDescription DescribeModel(const OpenedModel& model);

// Call it after the weights of the whole model were loaded. Returns a line for each kind of tensor
// that the files have and that was not read (whole layers, biases): the model then runs without a
// part of its files.
std::vector<std::string> DescribeUnread(const ModelSpec& spec, const WeightSource& weights);

}  // namespace baton
