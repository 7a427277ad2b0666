#include <cuda_bf16.h>

#include "kernels/cuda/gemm/few_outputs_gemm.h"
#include "kernels/cuda/gemm/tensor_map.h"
#include "kernels/cuda/primitives/hopper.cuh"
#include "kernels/cuda/primitives/launch.cuh"
#include "kernels/cuda/primitives/ring_cursor.cuh"
#include "kernels/cuda/primitives/wgmma.cuh"

// out[m][n] = Σ x[m][k] · weight[n][k]. The last warp of a thread block is the producer: it streams
// the tile's weights and rows of x through a ring of pipeline stages. One consumer warp group adds
// the products in ascending k. Rows of x are the rows of the accumulators. The producer fills the
// ring with weights before it waits for the previous kernel, and loads x after that.
namespace baton::cuda {
namespace {

constexpr int32_t kConsumers = 128;  // threads

struct Arguments {
  CUtensorMap weight;  // a box is the tile's rows × the spans of a stage
  CUtensorMap x;       // a box is x_rows rows × one span
  const __nv_bfloat16* bias = nullptr;
  void* out = nullptr;
  int64_t out_stride = 0;
  int32_t rows = 0;
  int32_t outputs = 0;
  bool f32 = false;
  FewOutputsPlan plan;
};

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

// The ring in shared memory.
template <int kColumns>
struct Ring {
  static constexpr int32_t kSpans = FewOutputsSpans(kColumns);
  static constexpr uint32_t kStageBytes = FewOutputsStageBytes(kColumns);
  static constexpr uint32_t kWeightBytes = kColumns * kSpanBytes;        // of a span
  static constexpr uint32_t kXBytes = kFewOutputsRowGroup * kSpanBytes;  // of a span
  static constexpr uint32_t kXAt = kSpans * kWeightBytes;

  uint32_t full;   // one barrier for each stage: its weights and x have arrived
  uint32_t empty;  // one barrier for each stage: all consumer warps have read it
  uint32_t stages;

  __device__ explicit Ring(const unsigned char* shared)
      : full(SharedAddress(shared)),
        empty(full + kFewOutputsMaxStages * 8),
        stages(full + kFewOutputsBarrierBytes) {}
  __device__ uint32_t Full(int32_t slot) const { return full + static_cast<uint32_t>(slot * 8); }
  __device__ uint32_t Empty(int32_t slot) const { return empty + static_cast<uint32_t>(slot * 8); }
  __device__ uint32_t Stage(int32_t slot) const {
    return stages + static_cast<uint32_t>(slot) * kStageBytes;
  }
};

// The tile of this thread block.
struct Work {
  int32_t first_output;
  int32_t first_row;

  __device__ explicit Work(const FewOutputsPlan& plan)
      : first_output(static_cast<int32_t>(blockIdx.x) / plan.row_groups * plan.columns),
        first_row(static_cast<int32_t>(blockIdx.x) % plan.row_groups * plan.x_rows) {}
};

// Runs on one thread of the producer warp.
template <int kColumns>
__device__ __forceinline__ void ProduceStages(const Arguments& a,
                                              const Work& work,
                                              const Ring<kColumns>& ring) {
  const FewOutputsPlan& plan = a.plan;
  const auto bytes = ring.kXAt + static_cast<uint32_t>(ring.kSpans * plan.x_rows * kSpanBytes);
  const auto load_weight = [&](int32_t slot, int32_t round) {
    ArriveExpectTx(ring.Full(slot), bytes);
    TmaLoad(ring.Stage(slot),
            &a.weight,
            0,
            work.first_output,
            round * ring.kSpans,
            ring.Full(slot),
            kEvictNormal);
  };
  const auto load_x = [&](int32_t slot, int32_t round) {
#pragma unroll
    for (int32_t span = 0; span < ring.kSpans; ++span) {
      TmaLoad(ring.Stage(slot) + ring.kXAt + static_cast<uint32_t>(span) * ring.kXBytes,
              &a.x,
              0,
              work.first_row,
              round * ring.kSpans + span,
              ring.Full(slot),
              kEvictLast);
    }
  };
  const int32_t early = min(plan.stages, plan.stages_per_tile);
  for (int32_t slot = 0; slot < early; ++slot) load_weight(slot, slot);
  WaitForPredecessor();
  for (int32_t slot = 0; slot < early; ++slot) load_x(slot, slot);
  RingCursor cursor;
  for (int32_t round = early; round < plan.stages_per_tile; ++round) {
    WaitBarrier(ring.Empty(cursor.slot), cursor.parity);
    load_weight(cursor.slot, round);
    load_x(cursor.slot, round);
    cursor.Advance(1, plan.stages);
  }
}

// Writes the outputs. Of every eight columns, a thread holds two columns in two rows.
template <int kColumns>
__device__ __forceinline__ void StoreTile(const Arguments& a,
                                          const Work& work,
                                          const float (&accumulators)[kColumns / 2]) {
  const auto thread = static_cast<int32_t>(threadIdx.x);
  const int32_t first_row = work.first_row + thread / 32 * 16 + thread % 32 / 4;
  const int32_t end_row = min(work.first_row + a.plan.x_rows, a.rows);
  const int32_t first_output = work.first_output + thread % 4 * 2;
#pragma unroll
  for (int group = 0; group < kColumns / 8; ++group) {
    const int32_t output = first_output + group * 8;
    if (output >= a.outputs) continue;
    float2 bias = make_float2(0, 0);
    if (a.bias != nullptr) {
      bias = make_float2(__bfloat162float(a.bias[output]), __bfloat162float(a.bias[output + 1]));
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int32_t row = first_row + half * 8;
      if (row >= end_row) continue;
      const int at = group * 4 + half * 2;
      const float2 sums = make_float2(accumulators[at] + bias.x, accumulators[at + 1] + bias.y);
      const int64_t to = row * a.out_stride + output;
      if (a.f32) {
        *reinterpret_cast<float2*>(static_cast<float*>(a.out) + to) = sums;
      } else {
        *reinterpret_cast<__nv_bfloat162*>(static_cast<__nv_bfloat16*>(a.out) + to) =
            __floats2bfloat162_rn(sums.x, sums.y);
      }
    }
  }
}

// Runs on the consumer warp group.
template <int kColumns>
__device__ __forceinline__ void ConsumeStages(const Arguments& a,
                                              const Work& work,
                                              const Ring<kColumns>& ring) {
  const bool arrives = threadIdx.x % 32 == 0;
  RingCursor cursor;
  int32_t last = -1;  // the previous stage, which pending WGMMAs may still read
  WaitForPredecessor();
  float accumulators[kColumns / 2];
#pragma unroll
  for (float& sum : accumulators) {
    sum = 0;
    // Without this, ptxas sets the zeros again within the loop, and waits for each WGMMA.
    asm volatile("" : "+f"(sum));
  }
  for (int32_t round = 0; round < a.plan.stages_per_tile; ++round) {
    WaitBarrier(ring.Full(cursor.slot), cursor.parity);
    const uint32_t stage = UniformInWarp(ring.Stage(cursor.slot));
    const uint64_t weight = SmemDescriptor(stage);
    const uint64_t x = SmemDescriptor(stage + ring.kXAt);
    WgmmaFence();
#pragma unroll
    for (int span = 0; span < ring.kSpans; ++span) {
#pragma unroll
      for (int step = 0; step < kSpanSteps; ++step) {
        WgmmaMultiply<kColumns>(accumulators,
                                x + ((span * ring.kXBytes >> 4) + step * 2),
                                weight + ((span * ring.kWeightBytes >> 4) + step * 2));
      }
    }
    WgmmaCommit();
    // The WGMMAs of the previous stage have completed, so that its slot can be refilled.
    WgmmaWait<1>();
    if (arrives && last >= 0) Arrive(ring.Empty(last));
    last = cursor.slot;
    cursor.Advance(1, a.plan.stages);
  }
  WgmmaWait<0>();
  StoreTile<kColumns>(a, work, accumulators);
}

#endif

template <int kColumns>
__global__ void __launch_bounds__(kConsumers + 32, 1)
    FewOutputsKernel(const __grid_constant__ Arguments a) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ __align__(1024) unsigned char shared[];
  const Ring<kColumns> ring(shared);
  const Work work(a.plan);
  if (threadIdx.x == kConsumers) {
    PrefetchMap(&a.weight);
    PrefetchMap(&a.x);
    for (int32_t i = 0; i < a.plan.stages; ++i) {
      InitBarrier(ring.Full(i), 1);
      InitBarrier(ring.Empty(i), kConsumers / 32);
    }
    FenceBarrierInit();
  }
  __syncthreads();
  ReleaseSuccessor();
  if (threadIdx.x < kConsumers) {
    ConsumeStages(a, work, ring);
  } else if (threadIdx.x == kConsumers) {
    ProduceStages(a, work, ring);
  }
#endif
}

using KernelPointer = void (*)(Arguments);

KernelPointer KernelFor(int32_t columns) {
  switch (columns) {
    case 16:
      return FewOutputsKernel<16>;
    case 24:
      return FewOutputsKernel<24>;
    case 32:
      return FewOutputsKernel<32>;
    case 48:
      return FewOutputsKernel<48>;
    default:
      return FewOutputsKernel<64>;
  }
}

}  // namespace

cudaError_t LaunchFewOutputsGemm(const GemmProblem& problem,
                                 const FewOutputsPlan& plan,
                                 cudaStream_t stream) {
  Arguments a;
  a.bias = problem.bias;
  a.out = problem.out;
  a.out_stride = problem.out_stride;
  a.rows = problem.rows;
  a.outputs = problem.n;
  a.f32 = problem.out_dtype == DType::kF32;
  a.plan = plan;
  cudaError_t error = MakeTensorMap(
      WeightOf(problem), {.rows = plan.columns, .spans = FewOutputsSpans(plan.columns)}, &a.weight);
  if (error != cudaSuccess) return error;
  error = MakeTensorMap(XOf(problem), {.rows = plan.x_rows}, &a.x);
  if (error != cudaSuccess) return error;
  const KernelPointer kernel = KernelFor(plan.columns);
  error =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, plan.shared_bytes);
  if (error != cudaSuccess) return error;
  const OverlappedLaunch launch(dim3(static_cast<unsigned>(plan.blocks())),
                                dim3(kConsumers + 32),
                                static_cast<size_t>(plan.shared_bytes),
                                stream);
  return cudaLaunchKernelEx(launch.config(), kernel, a);
}

}  // namespace baton::cuda
