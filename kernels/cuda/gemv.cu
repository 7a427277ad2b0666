#include <algorithm>

#include "kernels/cuda/gemv.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/vector8.cuh"
#include "kernels/cuda/warp_sum.cuh"

// A matrix times one vector is bound by reading the matrix. One block a multiprocessor; each warp
// takes rows in turn and streams them through a ring of its own, in pieces that the bulk copy
// engine brings to shared memory. The ring is filled before the kernel waits for its predecessor:
// weights do not depend on it, and so memory stays busy from one kernel to the next.
namespace baton::cuda {
namespace {

constexpr int kWarp = 32;
constexpr int kWarps = 16;
constexpr int kThreads = kWarps * kWarp;
constexpr int kRingBytes = 128 << 10;  // over half of the shared memory: one block a processor
constexpr int kBarrierBytes = 4096;

struct Arguments {
  const __nv_bfloat16* weight;
  const __nv_bfloat16* x;
  const float* residual;
  const float* norm_weight;
  float epsilon;
  const __nv_bfloat16* bias;
  void* out;
  int outputs;  // rows of the weight, or pairs of rows
  int k;
  bool accumulate;
};

__device__ __forceinline__ uint32_t Shared(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

__device__ __forceinline__ float Dot8(const Packed8& a, const Packed8& b, float sum) {
  float left[8];
  float right[8];
  Unpack(a, left);
  Unpack(b, right);
#pragma unroll
  for (int i = 0; i < 8; ++i) sum = fmaf(left[i], right[i], sum);
  return sum;
}

// Brings x to shared memory.
__device__ void LoadInput(const Arguments& a, __nv_bfloat16* to) {
  for (int i = static_cast<int>(threadIdx.x); i < a.k / 8; i += kThreads) {
    Store8(to + i * 8, Load8(a.x + i * 8));
  }
  __syncthreads();
}

// Brings residual · weight / √(mean(residual²) + epsilon) to shared memory.
__device__ void LoadNormed(const Arguments& a, __nv_bfloat16* to) {
  __shared__ float partial[kWarps];
  const int thread = static_cast<int>(threadIdx.x);
  float squares = 0;
  for (int i = thread; i < a.k / 8; i += kThreads) {
    float values[8];
    Read8(a.residual + i * 8, values);
#pragma unroll
    for (int j = 0; j < 8; ++j) squares = fmaf(values[j], values[j], squares);
  }
  squares = SumOverWarp(squares);
  if (thread % kWarp == 0) partial[thread / kWarp] = squares;
  __syncthreads();
  squares = 0;
  for (int i = 0; i < kWarps; ++i) squares += partial[i];
  const float scale = rsqrtf(squares / static_cast<float>(a.k) + a.epsilon);
  for (int i = thread; i < a.k / 8; i += kThreads) {
    float values[8];
    float weights[8];
    Read8(a.residual + i * 8, values);
    Read8(a.norm_weight + i * 8, weights);
#pragma unroll
    for (int j = 0; j < 8; ++j) values[j] *= scale * weights[j];
    Write8(to + i * 8, values);
  }
  __syncthreads();
}

template <class Out>
__device__ __forceinline__ void Put(const Arguments& a, int output, float value) {
  Out* out = static_cast<Out*>(a.out) + output;
  if (a.bias != nullptr) value += __bfloat162float(a.bias[output]);
  if (a.accumulate) value += static_cast<float>(*out);
  *out = static_cast<Out>(value);
}

// The pieces of the rows that one warp takes, and the ring they come through. Piece p lies in row
// p / pieces of the warp's rows; with kPairs every second row is that of the up part.
template <int kPiece, bool kPairs>
struct WarpRing {
  static constexpr int kSlots = kRingBytes / (kWarps * kPiece * 2);
  static_assert(kWarps * kSlots * 8 <= kBarrierBytes);

  const Arguments& a;
  __nv_bfloat16* slots;
  uint32_t barriers;
  int pieces;  // a row
  int stride;  // between two outputs of a warp
  int first;   // output
  int total;   // pieces

  __device__ WarpRing(const Arguments& arguments, unsigned char* memory, int warp)
      : a(arguments),
        slots(reinterpret_cast<__nv_bfloat16*>(memory) + warp * kSlots * kPiece),
        barriers(Shared(memory + kRingBytes) + static_cast<uint32_t>(warp * kSlots * 8)),
        pieces(a.k / kPiece),
        stride(static_cast<int>(gridDim.x) * kWarps),
        first(static_cast<int>(blockIdx.x) * kWarps + warp) {
    const int mine = first < a.outputs ? (a.outputs - first + stride - 1) / stride : 0;
    total = mine * (kPairs ? 2 : 1) * pieces;
  }

  __device__ int Output(int row) const { return first + (kPairs ? row / 2 : row) * stride; }
  __device__ uint32_t Barrier(int slot) const { return barriers + static_cast<uint32_t>(slot * 8); }
  __device__ const __nv_bfloat16* Source(int piece) const {
    const int row = piece / pieces;
    const int64_t line = Output(row) + (kPairs && row % 2 == 1 ? a.outputs : 0);
    return a.weight + line * a.k + (piece - row * pieces) * kPiece;
  }

  // By one lane: what follows is by the whole warp.
  __device__ void Fill() const {
    for (int slot = 0; slot < kSlots; ++slot) {
      asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(Barrier(slot)) : "memory");
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    for (int piece = 0; piece < min(kSlots, total); ++piece) Fetch(piece, piece);
  }
  __device__ void Fetch(int piece, int slot) const {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(Barrier(slot)),
                 "r"(kPiece * 2)
                 : "memory");
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
            "r"(Shared(slots + slot * kPiece)),
        "l"(Source(piece)),
        "r"(kPiece * 2),
        "r"(Barrier(slot))
        : "memory");
  }
  __device__ void Wait(int slot, uint32_t phase) const {
    uint32_t arrived = 0;
    while (arrived == 0) {
      asm volatile(
          "{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; "
          "selp.u32 %0, 1, 0, p; }"
          : "=r"(arrived)
          : "r"(Barrier(slot)), "r"(phase)
          : "memory");
    }
  }
};

// kPiece numbers of a row are moved at once. With kPairs, output i is silu(row i) · row (outputs +
// i).
template <int kPiece, bool kNorm, bool kPairs, class Out>
__global__ void __launch_bounds__(kThreads, 1) GemvKernel(const __grid_constant__ Arguments a) {
#if __CUDA_ARCH__ >= 900
  extern __shared__ __align__(128) unsigned char memory[];
  ReleaseSuccessor();
  using Ring = WarpRing<kPiece, kPairs>;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const Ring ring(a, memory, static_cast<int>(threadIdx.x) / kWarp);
  auto* x = reinterpret_cast<__nv_bfloat16*>(memory + kRingBytes + kBarrierBytes);
  if (lane == 0) ring.Fill();
  __syncwarp();
  WaitForPredecessor();
  if (kNorm) {
    LoadNormed(a, x);
  } else {
    LoadInput(a, x);
  }

  int slot = 0;
  uint32_t phase = 0;
  int column = 0;  // piece of the row
  int row = 0;
  float sum = 0;
  float gate = 0;
  for (int piece = 0; piece < ring.total; ++piece) {
    ring.Wait(slot, phase);
    Packed8 weights[kPiece / 256];
    const __nv_bfloat16* from = ring.slots + slot * kPiece + lane * 8;
#pragma unroll
    for (int i = 0; i < kPiece / 256; ++i) weights[i] = Load8(from + i * kWarp * 8);
    __syncwarp();
    if (lane == 0 && piece + Ring::kSlots < ring.total) ring.Fetch(piece + Ring::kSlots, slot);
    const __nv_bfloat16* inputs = x + column * kPiece + lane * 8;
#pragma unroll
    for (int i = 0; i < kPiece / 256; ++i) {
      sum = Dot8(weights[i], Load8(inputs + i * kWarp * 8), sum);
    }
    if (++slot == Ring::kSlots) {
      slot = 0;
      phase ^= 1;
    }
    if (++column < ring.pieces) continue;
    const float value = SumOverWarp(sum);
    column = 0;
    sum = 0;
    if (kPairs && row % 2 == 0) {
      gate = value;
    } else if (lane == 0) {
      Put<Out>(a, ring.Output(row), kPairs ? gate / (1.0f + __expf(-gate)) * value : value);
    }
    ++row;
  }
#endif
}

using Kernel = void (*)(Arguments);

template <int kPiece, class Out>
Kernel KernelFor(const Product& product) {
  if (product.silu_mul) {
    return product.norm_weight != nullptr ? GemvKernel<kPiece, true, true, Out>
                                          : GemvKernel<kPiece, false, true, Out>;
  }
  return product.norm_weight != nullptr ? GemvKernel<kPiece, true, false, Out>
                                        : GemvKernel<kPiece, false, false, Out>;
}

size_t SharedBytes(int k) {
  return static_cast<size_t>(kRingBytes + kBarrierBytes) + static_cast<size_t>(k) * 2;
}

}  // namespace

bool GemvTakes(const Product& product) {
  constexpr size_t kMostShared = 227 << 10;
  return product.rows == 1 && product.k % 512 == 0 && SharedBytes(product.k) <= kMostShared &&
         (!product.silu_mul || product.bias == nullptr);
}

cudaError_t LaunchGemv(const Product& product, int processors, cudaStream_t stream) {
  const bool wide = product.k % 1024 == 0;
  const bool f32 = product.out_dtype == DType::kF32;
  const Kernel kernel =
      wide ? (f32 ? KernelFor<1024, float>(product) : KernelFor<1024, __nv_bfloat16>(product))
           : (f32 ? KernelFor<512, float>(product) : KernelFor<512, __nv_bfloat16>(product));
  const size_t shared = SharedBytes(product.k);
  const cudaError_t error = cudaFuncSetAttribute(
      kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared));
  if (error != cudaSuccess) return error;
  const Arguments arguments = {.weight = product.weight,
                               .x = product.x,
                               .residual = product.residual,
                               .norm_weight = product.norm_weight,
                               .epsilon = product.norm_epsilon,
                               .bias = product.bias,
                               .out = product.out,
                               .outputs = product.silu_mul ? product.n / 2 : product.n,
                               .k = product.k,
                               .accumulate = product.accumulate};
  return LaunchOverlapped(
      kernel, dim3(static_cast<unsigned>(processors)), dim3(kThreads), shared, stream, arguments);
}

}  // namespace baton::cuda
