#pragma once

#include <cstdint>

#include "kernels/recurrent_ops.h"
#include "kernels/tensor.h"

namespace baton {

// The columns of the inputs of RecurrentOps::RunRecurrent: where q, k, v and z of the first key
// head begin, and how far those of the next key head are behind them.
struct RecurrentColumns {
  int64_t q = 0;
  int64_t k = 0;
  int64_t v = 0;
  int64_t z = 0;
  int64_t beta = 0;          // of all heads
  int64_t key_stride = 0;    // of q and k
  int64_t value_stride = 0;  // of v and z
};

RecurrentColumns ColumnsOf(const RecurrentShape& shape);

// Check the sizes of arguments (CHECK).
void CheckColumns(const Tensor& x, int64_t cols, const char* what);
void CheckRecurrentVectors(const RecurrentArgs& args);

}  // namespace baton
