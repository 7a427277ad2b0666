#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "kernels/dtype.h"

namespace baton {

// A tensor with its bytes, for tests that write weight files.
struct HeldTensor {
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
  std::vector<std::byte> bytes;
  std::string other_type = {};  // the file's name of a type that is not a DType
};

// By name.
using HeldTensors = std::map<std::string, HeldTensor>;

// The content of a safetensors file with these tensors.
std::string SafetensorsFileOf(const HeldTensors& tensors);

// All tensors of the Hugging Face directory `path`. Aborts when it cannot be read.
HeldTensors TensorsIn(const std::string& path);

// The content of an index in which every tensor of `tensors` is in the file `name`.
std::string IndexOf(const std::map<std::string, HeldTensors>& files);

}  // namespace baton
