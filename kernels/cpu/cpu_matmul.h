#pragma once

#include <span>
#include <vector>

#include "kernels/cpu/kernel_table.h"
#include "kernels/cpu/packed_matrix.h"
#include "kernels/cpu/tile_buffer.h"
#include "kernels/expert_args.h"
#include "kernels/tensor.h"
#include "kernels/thread_pool.h"

namespace baton::cpu {

// GEMM: divides the rows into tiles, and distributes the panels of all tiles over the thread pool.
// Owned by CpuOps; one thread at a time.
class CpuMatMul final {
 public:
  CpuMatMul(const KernelTable& kernels, ThreadPool& pool)
      : kernels_(kernels), pool_(pool), scales_(static_cast<size_t>(pool.threads())) {}

  // out[row] = W x[row] (+ bias); `bias` has one value per row of W, or is null.
  void Multiply(const Tensor& x, const PackedMatrix& w, const float* bias, const Tensor& out);
  // Gated GEMM: out[row] = silu(gate x (+ bias)) · (up x (+ bias)), or as `form` tells. `w` has the
  // parts gate and up; `bias` is [gate | up] or null.
  void GatedMultiply(const Tensor& x,
                     const PackedMatrix& w,
                     const float* bias,
                     const ExpertGate& form,
                     const Tensor& out);

 private:
  void Prepare(const Tensor& x, const PackedMatrix& w);
  // Copies x with its columns in the order of the weights' inputs (PackedMatrix::input_order).
  void Reorder(const Tensor& x, std::span<const int32_t> order);
  // Runs body(tile, first row, first panel, end, thread) on the thread pool, such that each of
  // `panels` panels is computed once for each tile. The items of work become smaller towards the
  // end, so that they are few and all threads end at the same time.
  template <class Body>
  void Share(int64_t panels, const PackedMatrix& w, const Body& body);
  // Computes `count` panels from `panel` on, on thread `thread` of the pool.
  void Panels(const PackedPart& part,
              const TileView& x,
              int64_t panel,
              int32_t count,
              int thread,
              float* acc);

  const KernelTable& kernels_;
  ThreadPool& pool_;
  TileBuffer tiles_;
  std::vector<float> reordered_;
  std::vector<std::vector<float>> scales_;  // by thread: expanded scales of the panels of a call
  std::vector<int64_t> items_;  // where each item of work begins, and the end of the last one
};

}  // namespace baton::cpu
