#include <algorithm>

#include "kernels/cuda/exchange/rank_sum.h"
#include "kernels/cuda/primitives/float_numbers.cuh"
#include "kernels/cuda/primitives/launch.cuh"
#include "kernels/cuda/primitives/rounding.h"
#include "kernels/cuda/primitives/tree_sum.cuh"
#include "kernels/cuda/primitives/vector8.cuh"

namespace baton::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kMaxBlocks = 1056;

template <class T>
struct SumArguments {
  const T* parts;
  int32_t ranks;
  T* out;
  int64_t rows;
  int64_t cols;
  int64_t stride;  // elements from one row of `out` to the next
};

// In an iteration each thread adds kWidth elements of a row.
template <class T, int kWidth>
__global__ void RankSumKernel(const SumArguments<T> a) {
  ReleaseSuccessor();
  WaitForPredecessor();
  const int64_t part = a.rows * a.cols;
  const int64_t grid_stride = int64_t{gridDim.x} * kThreads * kWidth;
  for (int64_t at = (int64_t{blockIdx.x} * kThreads + threadIdx.x) * kWidth; at < part;
       at += grid_stride) {
    T* const to = a.out + at / a.cols * a.stride + at % a.cols;
    if constexpr (kWidth == 8) {
      TreeSum<8> sum;
      for (int32_t rank = 0; rank < a.ranks; ++rank) {
        sum.Begin(rank);
        Read8(a.parts + rank * part + at, sum.leaf());
      }
      float total[8];
      sum.Total(total);
      Write8(to, total);
    } else {
      TreeSum<1> sum;
      for (int32_t rank = 0; rank < a.ranks; ++rank) {
        sum.Begin(rank);
        sum.leaf()[0] = ToFloat(a.parts[rank * part + at]);
      }
      float total[1];
      sum.Total(total);
      Store(total[0], to);
    }
  }
}

template <class T>
cudaError_t Launch(const std::byte* parts, int32_t ranks, const Tensor& out, cudaStream_t stream) {
  const bool vectors =
      out.cols % 8 == 0 && out.stride % 8 == 0 && reinterpret_cast<uintptr_t>(out.data) % 16 == 0;
  const int64_t items = out.rows * out.cols / (vectors ? 8 : 1);
  const auto blocks =
      static_cast<unsigned>(std::clamp<int64_t>(CeilDiv(items, int64_t{kThreads}), 1, kMaxBlocks));
  const SumArguments<T> arguments = {.parts = reinterpret_cast<const T*>(parts),
                                     .ranks = ranks,
                                     .out = reinterpret_cast<T*>(out.data),
                                     .rows = out.rows,
                                     .cols = out.cols,
                                     .stride = out.stride};
  return LaunchOverlapped(vectors ? RankSumKernel<T, 8> : RankSumKernel<T, 1>,
                          dim3(blocks),
                          dim3(kThreads),
                          0,
                          stream,
                          arguments);
}

}  // namespace

cudaError_t LaunchRankSum(const std::byte* parts,
                          int32_t ranks,
                          const Tensor& out,
                          cudaStream_t stream) {
  if (out.rows == 0) return cudaSuccess;
  return out.dtype == DType::kF32 ? Launch<float>(parts, ranks, out, stream)
                                  : Launch<__nv_bfloat16>(parts, ranks, out, stream);
}

}  // namespace baton::cuda
