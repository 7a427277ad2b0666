#include <cuda_bf16.h>

#include <cstdint>

#include "kernels/cuda/attention_kernels.h"
#include "kernels/cuda/attention_warp.cuh"
#include "kernels/cuda/hopper.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/over_warp.cuh"
#include "kernels/cuda/quantize.cuh"
#include "kernels/cuda/ring_cursor.cuh"

// Attention of single rows, as many thread blocks as processors: each streams its share of all
// units through a ring of shared memory, a unit with all its KV heads at a time, which lie together
// in a block of the arena: memory gives those a tenth faster than what kernels read that take a
// head each. The block's last warp fetches; the others take a KV head each.
//
// What was in the cache before this step is fetched before the kernel waits for its predecessor,
// which writes the queries and the newest positions. A row that lies in several shares is added up
// by the block that comes last, or, of many shares, by the kernel behind this one. The block that
// has all of a row can write it in E4M3.
namespace baton::cuda {
namespace {

constexpr int kHeadDim = 128;
constexpr int kQueryBytes = kHeadDim * static_cast<int>(sizeof(__nv_bfloat16));
constexpr int kRingBytes = 160 << 10;
constexpr int kMostStages = 10;
constexpr int kQuerySlots = 2;

struct Arguments {
  ShareWork work;
  RowsCall call;
  uint8_t* quantized;  // [row][q head][dim], instead of call.out
  float* scales;       // [row]
};

// What a thread block takes of one row.
struct Segment {
  int listed;
  SharedRow row;
  int first;  // units
  int end;

  __device__ __forceinline__ int newest() const { return (row.end - 1) / kUnit; }
  __device__ __forceinline__ bool whole() const { return row.shares == 1; }
};

// Calls use(segment) for each row of a share.
template <class Use>
__device__ __forceinline__ void ForEachSegment(const ShareWork& work,
                                               const Share& share,
                                               const Use& use) {
  Segment segment;
  segment.listed = share.listed;
  segment.row = share.row;
  SharedRow next;
  int skipped = share.unit;
  for (int left = share.units; left > 0;) {
    const int first = segment.row.begin / kUnit;
    segment.first = first + skipped;
    segment.end = min(segment.first + left, segment.newest() + 1);
    left -= segment.end - segment.first;
    // Asked for early: memory answers late while it streams.
    if (left > 0) next = work.list[segment.listed + 1];
    use(segment);
    ++segment.listed;
    segment.row = next;
    skipped = 0;
  }
}

// What warps that attend tell each other. Whoever writes here has awaited the other slot's use, and
// with it the last reads of this one.
template <int kHeads>
struct Exchange {
  uint32_t come[2];
  float largest[2][kHeads];
};

// Shared memory of a thread block, where every slot has two barriers: a ring whose stages are K or
// V of a unit, and the queries of one row and of the next.
template <class Kv, int kHeads>
struct Memory {
  static constexpr int kUnitBytes = kUnit * kHeadDim * static_cast<int>(sizeof(Kv));
  static constexpr int kStageBytes = kHeads * kUnitBytes;
  static constexpr int kStages =
      kRingBytes / kStageBytes < kMostStages ? kRingBytes / kStageBytes : kMostStages;
  static constexpr int kSlots = kStages + kQuerySlots;
  static constexpr int kQueriesBytes = kHeads * kMaxQueries * kQueryBytes;
  static constexpr int kBytes = kStages * kStageBytes + kQuerySlots * kQueriesBytes;

  uint32_t barriers;
  uint32_t ring;
  Exchange<kHeads>* exchange;

  __device__ __forceinline__ uint32_t Full(int slot) const { return barriers + slot * 16; }
  __device__ __forceinline__ uint32_t Empty(int slot) const { return barriers + slot * 16 + 8; }
  __device__ __forceinline__ uint32_t Stage(int slot) const {
    return ring + static_cast<uint32_t>(slot * kStageBytes);
  }
  __device__ __forceinline__ uint32_t Queries(int slot) const {
    return ring + static_cast<uint32_t>(kStages * kStageBytes + slot * kQueriesBytes);
  }
};

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

// The numbers of the blocks of a row's units, 32 at a time, one a lane; the next ones are asked for
// early.
class BlockNumbers {
 public:
  // Of units [first, end) of the row.
  __device__ __forceinline__ void Begin(const int32_t* tables, const Segment& segment) {
    Ask(tables, segment.row, segment.first, segment.end);
  }
  __device__ __forceinline__ int At(const int32_t* tables, const Segment& segment, int unit) {
    const int i = (unit - segment.first) % 32;
    if (i == 0) {
      now_ = next_;
      Ask(tables, segment.row, unit + 32, segment.end);
    }
    return __shfl_sync(~0u, now_, i);
  }

 private:
  __device__ __forceinline__ void Ask(const int32_t* tables,
                                      const SharedRow& row,
                                      int first,
                                      int end) {
    const int unit = first + static_cast<int>(threadIdx.x);
    if (unit < end) next_ = tables[row.table_start + unit];
  }

  int now_ = 0;
  int next_ = 0;
};

// The warp that fetches.
template <class Kv, int kHeads>
class Fetcher {
 public:
  __device__ __forceinline__ Fetcher(const Arguments& a, const Memory<Kv, kHeads>& memory)
      : a_(a),
        memory_(memory),
        first_head_(static_cast<int>(blockIdx.y) * kHeads),
        lane_(static_cast<int>(threadIdx.x)) {}

  __device__ __forceinline__ void Run(const Share& share) {
    const std::byte* keys = a_.call.keys + first_head_ * a_.call.head_stride;
    bool is_first = true;
    ForEachSegment(a_.work, share, [&](const Segment& segment) {
      if (is_first) {
        first_row_ = segment.row.row;
      } else {
        Await();
        FetchQueries(segment.row.row);
      }
      is_first = false;
      BlockNumbers blocks;
      blocks.Begin(a_.work.tables, segment);
      for (int unit = segment.first; unit < segment.end; ++unit) {
        const std::byte* at =
            keys + blocks.At(a_.work.tables, segment, unit) * a_.call.block_stride;
        if (unit == segment.newest()) Await();
        FetchStage(at);
        FetchStage(at + a_.call.part_stride);
      }
    });
    if (share.units > 0) Await();
  }

 private:
  using M = Memory<Kv, kHeads>;

  // Waits for the predecessor, which writes queries and newest positions.
  __device__ __forceinline__ void Await() {
    if (awaited_) return;
    WaitForPredecessor();
    awaited_ = true;
    FetchQueries(first_row_);
  }

  __device__ __forceinline__ void FetchStage(const std::byte* from) {
    if (reused_) {
      Await();  // without queries nobody empties a stage
      AwaitPhase(memory_.Empty(cursor_.slot), cursor_.parity ^ 1);
    }
    if (lane_ == 0) {
      ArriveExpecting(memory_.Full(cursor_.slot), M::kStageBytes);
      CopyBytes(memory_.Stage(cursor_.slot), from, M::kStageBytes, memory_.Full(cursor_.slot));
    }
    cursor_.Advance(1, M::kStages);
    reused_ = reused_ || cursor_.slot == 0;
  }

  __device__ __forceinline__ void FetchQueries(int row) {
    const int slot = M::kStages + queries_.slot;
    if (queries_reused_) AwaitPhase(memory_.Empty(slot), queries_.parity ^ 1);
    const RowsCall& call = a_.call;
    const uint32_t bytes = static_cast<uint32_t>(kHeads * call.group * kQueryBytes);
    if (lane_ == 0) {
      ArriveExpecting(memory_.Full(slot), bytes);
      CopyBytes(memory_.Queries(queries_.slot),
                call.q + row * call.q_stride + int64_t{first_head_} * call.group * kHeadDim,
                bytes,
                memory_.Full(slot));
    }
    queries_.Advance(1, kQuerySlots);
    queries_reused_ = queries_reused_ || queries_.slot == 0;
  }

  const Arguments& a_;
  const M memory_;
  const int first_head_;
  const int lane_;
  bool awaited_ = false;
  int first_row_ = 0;
  RingCursor cursor_;
  bool reused_ = false;
  RingCursor queries_;
  bool queries_reused_ = false;
};

// Of one row and KV head, where a share lays down its part.
struct Part {
  float* values;   // [query][dim]
  float* weights;  // [query]

  __device__ __forceinline__ Part(const Arguments& a, int share, int listed, int kv_head) {
    const int64_t head = (int64_t{share + listed} * a.call.kv_heads + kv_head) * a.call.group;
    values = a.work.partial.values + head * kHeadDim;
    weights = a.work.partial.weights + head;
  }
};

// A warp that takes a KV head.
template <class Kv, int kHeads>
class Attender {
 public:
  __device__ __forceinline__ Attender(const Arguments& a, const Memory<Kv, kHeads>& memory)
      : a_(a),
        memory_(memory),
        lane_(static_cast<int>(threadIdx.x)),
        head_(static_cast<int>(threadIdx.y)),
        kv_head_(static_cast<int>(blockIdx.y) * kHeads + head_) {}

  __device__ __forceinline__ void Run(const Share& share) {
    const RowsCall& call = a_.call;
    const bool scaled = call.kv_scales != nullptr;
    const float score_scale = scaled ? call.scale * call.kv_scales[kv_head_] : call.scale;
    const float value_scale = scaled ? call.kv_scales[call.kv_heads + kv_head_] : 1.0f;
    Warp<kHeadDim, Kv> work;
    WaitForPredecessor();
    ForEachSegment(a_.work, share, [&](const Segment& segment) {
      const SharedRow& row = segment.row;
      work.Reset();
      Take(M::kStages + queries_.slot, queries_.parity, [&] {
        const int offset = head_ * call.group * kQueryBytes;
        work.LoadQueries(RowsInShared{memory_.Queries(queries_.slot) + offset}, call.group);
      });
      queries_.Advance(1, kQuerySlots);
      for (int unit = segment.first; unit < segment.end; ++unit) {
        TakeStage([&](const RowsInShared& rows) {
          work.LoadKeys(rows);
          work.Score(unit * kUnit, row.begin, row.end, score_scale);
        });
        work.Soften();
        TakeStage([&](const RowsInShared& rows) {
          work.LoadValues(rows);
          work.AddValues(unit * kUnit, row.end);
        });
      }
      if (!segment.whole() && !AddOthers(segment, value_scale, work)) return;
      const int64_t columns = int64_t{kv_head_} * call.group * kHeadDim;
      if (a_.quantized == nullptr) {
        work.WriteRows(call.out + row.row * call.out_stride + columns, call.group, value_scale);
        return;
      }
      const float largest = LargestOfRow(work.LargestOfRows(call.group, value_scale));
      if (head_ == 0 && lane_ == 0) a_.scales[row.row] = largest / kLargestFp8;
      const int64_t row_bytes = int64_t{kHeads} * call.group * kHeadDim;
      work.WriteRows(a_.quantized + row.row * row_bytes + columns,
                     call.group,
                     value_scale,
                     QuantizingFactor(largest));
    });
  }

 private:
  using M = Memory<Kv, kHeads>;

  // Calls `use` once the slot is filled, which is empty again when all have used it.
  template <class Use>
  __device__ __forceinline__ void Take(int slot, uint32_t parity, const Use& use) {
    AwaitPhase(memory_.Full(slot), parity);
    use();
    // An arrival does not wait for loads from shared memory that are still under way: without the
    // fence the next bytes came before they were done (on an H200). Each lane arrives for itself:
    // as fast as one for all behind a __syncwarp, and racecheck can follow it.
    __threadfence_block();
    Arrive(memory_.Empty(slot));
  }
  template <class Use>
  __device__ __forceinline__ void TakeStage(const Use& use) {
    Take(cursor_.slot, cursor_.parity, [&] {
      use(RowsInShared{memory_.Stage(cursor_.slot) + static_cast<uint32_t>(head_ * M::kUnitBytes)});
    });
    cursor_.Advance(1, M::kStages);
  }

  // Of a row that lies in other shares, too: true when `work` has become the sum of all parts;
  // else this one is laid down for who adds them up.
  __device__ __forceinline__ bool AddOthers(const Segment& segment,
                                            float value_scale,
                                            Warp<kHeadDim, Kv>& work) {
    const SharedRow& row = segment.row;
    const int group = a_.call.group;
    const auto share = static_cast<int>(blockIdx.x);
    const Part mine(a_, share, segment.listed, kv_head_);
    if (row.shares > kMostAddedShares) {
      work.WritePart(mine.values, mine.weights, group, value_scale);
      return false;
    }
    uint32_t* ticket = a_.work.tickets + segment.listed * gridDim.y + blockIdx.y;
    const auto others = static_cast<uint32_t>(row.shares) - 1;
    // When they have come already, this part need not be laid down.
    if (Told([&] { return LoadAcquire(ticket); }) != others) {
      work.WritePart(mine.values, mine.weights, group, 1);
      SyncHeads();
      if (Told([&] { return ArriveAt(ticket); }) != others) return false;
    }
    work.Add(row.shares - 1, group, [&](int i) {
      const int at = row.first_share + i;
      return Part(a_, at < share ? at : at + 1, segment.listed, kv_head_);
    });
    if (head_ == 0 && lane_ == 0) *ticket = 0;
    return true;
  }

  // What one thread of the block has from ask(), in all that attend.
  template <class Ask>
  __device__ __forceinline__ uint32_t Told(const Ask& ask) {
    uint32_t& come = memory_.exchange->come[slot_];
    slot_ ^= 1;
    if (head_ == 0 && lane_ == 0) come = ask();
    SyncHeads();
    return come;
  }
  // The largest number of the whole row.
  __device__ __forceinline__ float LargestOfRow(float of_head) {
    float* const largest = memory_.exchange->largest[slot_];
    slot_ ^= 1;
    if (lane_ == 0) largest[head_] = of_head;
    SyncHeads();
    return LargestOverWarp(largest[lane_ % kHeads]);
  }
  // All warps of the block that attend.
  static __device__ __forceinline__ void SyncHeads() {
    asm volatile("barrier.sync 1, %0;" ::"n"(kHeads * 32) : "memory");
  }

  // Both order what the block's threads do before and after they meet around them.
  static __device__ __forceinline__ uint32_t LoadAcquire(const uint32_t* from) {
    uint32_t value = 0;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
    return value;
  }
  static __device__ __forceinline__ uint32_t ArriveAt(uint32_t* ticket) {
    uint32_t come = 0;
    asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], 1;"
                 : "=r"(come)
                 : "l"(ticket)
                 : "memory");
    return come;
  }

  const Arguments& a_;
  const M memory_;
  const int lane_;
  const int head_;
  const int kv_head_;
  RingCursor cursor_;
  RingCursor queries_;
  int slot_ = 0;  // of the exchange
};

#endif

// Grid [share][group of KV heads], block [lane][KV head, and one that fetches].
template <class Kv, int kHeads>
__global__ void __launch_bounds__((kHeads + 1) * 32, 1)
    AttendShares(const __grid_constant__ Arguments a) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  using M = Memory<Kv, kHeads>;
  extern __shared__ __align__(128) unsigned char shared[];
  __shared__ uint64_t barriers[2 * M::kSlots];
  __shared__ Exchange<kHeads> exchange;
  const M memory = {SharedAddress(barriers), SharedAddress(shared), &exchange};
  if (threadIdx.x == 0 && threadIdx.y == kHeads) {
    for (int slot = 0; slot < M::kSlots; ++slot) {
      InitBarrier(memory.Full(slot), 1);
      InitBarrier(memory.Empty(slot), kHeads * 32);
    }
    PublishBarriers();
  }
  const Share share = a.work.shares[blockIdx.x];
  __syncthreads();
  ReleaseSuccessor();
  if (threadIdx.y == kHeads) {
    Fetcher<Kv, kHeads>(a, memory).Run(share);
  } else {
    Attender<Kv, kHeads>(a, memory).Run(share);
  }
#endif
}

template <class Kv, int kHeads>
struct Kernel {
  static constexpr auto kFunction = AttendShares<Kv, kHeads>;
  static constexpr int kSharedBytes = Memory<Kv, kHeads>::kBytes;

  static cudaError_t Prepare() {
    return cudaFuncSetAttribute(
        kFunction, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes);
  }

  static cudaError_t Launch(const Arguments& a, const AttentionCall& call) {
    return LaunchOverlapped(kFunction,
                            dim3(a.work.count, call.shape.kv_heads / kHeads),
                            dim3(32, kHeads + 1),
                            kSharedBytes,
                            call.stream,
                            a);
  }
};

// Calls `use` with the kernel for a thread block's KV heads.
template <class Use>
cudaError_t With(const AttentionShape& shape, bool quantized, const Use& use) {
  const bool eight = shape.kv_heads % 8 == 0;
  if (quantized) {
    return eight ? use(Kernel<__nv_fp8_e4m3, 8>()) : use(Kernel<__nv_fp8_e4m3, 4>());
  }
  return eight ? use(Kernel<__nv_bfloat16, 8>()) : use(Kernel<__nv_bfloat16, 4>());
}

}  // namespace

bool TakesShares(const AttentionShape& shape, const KvView& kv) {
  const auto head_bytes = kUnit * kHeadDim * static_cast<int64_t>(ShapeOf(kv.dtype).bytes);
  return TakesSingleRows(shape, kv) && shape.head_dim == kHeadDim && shape.kv_heads % 4 == 0 &&
         kv.block_tokens == kUnit && kv.head_stride == head_bytes;
}

bool SharesQuantize(const AttentionShape& shape) {
  return ShareGroups(shape) == 1;
}

int32_t ShareGroups(const AttentionShape& shape) {
  return shape.kv_heads % 8 == 0 ? shape.kv_heads / 8 : shape.kv_heads / 4;
}

cudaError_t PrepareShareAttention() {
  for (const int32_t kv_heads : {4, 8}) {
    AttentionShape shape;
    shape.kv_heads = kv_heads;
    for (const bool quantized : {false, true}) {
      const cudaError_t error =
          With(shape, quantized, [](auto kernel) { return kernel.Prepare(); });
      if (error != cudaSuccess) return error;
    }
  }
  return cudaSuccess;
}

cudaError_t LaunchShareAttention(const ShareWork& work, const AttentionCall& call) {
  const Arguments a = {work,
                       RowsCallOf(call, work.tables),
                       reinterpret_cast<uint8_t*>(call.quantized.data),
                       call.quantized.scales};
  return With(
      call.shape, call.kv.dtype == DType::kF8, [&](auto kernel) { return kernel.Launch(a, call); });
}

}  // namespace baton::cuda
