#pragma once

#include <memory>
#include <random>
#include <vector>

#include "kernels/ops.h"

namespace baton::parity {

// `count` seeded random numbers of a normal distribution with standard deviation `scale`.
std::vector<float> RandomFloats(size_t count, uint64_t seed, float scale = 1.0f);

// As RandomFloats, rounded to the activation type of `ops`.
std::vector<float> RandomActivations(const Ops& ops,
                                     size_t count,
                                     uint64_t seed,
                                     float scale = 1.0f);

// A matrix of activations in the memory of a backend, with unused elements between the rows and
// padding rows for the backend after the last row.
class DeviceTensor final {
 public:
  DeviceTensor(Ops& ops, int64_t rows, int64_t cols);
  DeviceTensor(Ops& ops, int64_t rows, int64_t cols, const std::vector<float>& values);
  DeviceTensor(Ops& ops, DType dtype, int64_t rows, int64_t cols);  // kF32 or kBF16

  const Tensor& view() const { return view_; }
  void Write(const std::vector<float>& values);
  std::vector<float> Read() const;

 private:
  Ops& ops_;
  Tensor view_;
  std::unique_ptr<Buffer> buffer_;
};

// A KV cache in the memory of a backend.
struct Cache {
  Cache(Ops& ops,
        DType dtype,
        int32_t layers,
        const HeadShape& heads,
        int32_t block_tokens,
        int32_t blocks);
  KvView view;
  std::unique_ptr<Buffer> buffer;
};

}  // namespace baton::parity
