#pragma once

#include "kernels/cpu/kernel_table.h"
#include "kernels/cpu/packed_matrix.h"
#include "kernels/cpu/tile_buffer.h"
#include "kernels/tensor.h"
#include "kernels/thread_pool.h"

namespace baton::cpu {

// Matrix products: cuts rows into tiles and panels into groups, and shares them out. Owned by
// CpuOps; one thread at a time.
class CpuMatMul final {
 public:
  CpuMatMul(const KernelTable& kernels, ThreadPool& pool) : kernels_(kernels), pool_(pool) {}

  // out[row] = W x[row] (+ bias[rows of W]).
  void Multiply(const Tensor& x, const PackedMatrix& w, const float* bias, const Tensor& out);
  // out[row] = silu(gate x + …) · (up x + …); `w` has the parts gate and up, bias is [gate | up].
  void SiluMultiply(const Tensor& x, const PackedMatrix& w, const float* bias, const Tensor& out);

 private:
  void Prepare(const Tensor& x, const PackedMatrix& w);
  // body(tile, group) for all tiles and `groups` groups.
  template <class Body>
  void Share(int64_t groups, const Body& body);
  void Panels(const PackedPart& part, const TileView& x, int64_t panel, int32_t count, float* acc);

  const KernelTable& kernels_;
  ThreadPool& pool_;
  TileBuffer tiles_;
};

}  // namespace baton::cpu
