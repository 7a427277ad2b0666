#include <cuda_bf16.h>

#include <cstdint>

#include "kernels/cuda/attention/attention_kernels.h"
#include "kernels/cuda/attention/decode_warp.cuh"
#include "kernels/cuda/primitives/hopper.cuh"
#include "kernels/cuda/primitives/launch.cuh"
#include "kernels/cuda/primitives/ring_cursor.cuh"
#include "kernels/cuda/primitives/warp_reduce.cuh"
#include "kernels/cuda/rows/quantize.cuh"

// Stream-K attention of single rows. Each thread block streams its work tile of all units through a
// ring in shared memory. A stage holds a unit of K or V with all its KV heads, which are contiguous
// in an arena block; such large reads are about 10% faster than reading each head by itself. The
// block's last warp is the producer; each other warp consumes one KV head. An SM runs one block of
// eight or four KV heads, or several of two or one, which divide its shared memory. A head's warp
// computes in the same order whatever the number of heads: in deterministic mode, a head has the
// same bits on a rank with all KV heads of a model and on a rank with one of them.
//
// KV from earlier steps is loaded before the kernel waits for its predecessor, which writes the
// queries and the KV of this step. The last work tile of a row to arrive combines its partial
// results; a separate kernel combines rows with many work tiles, and the splits of deterministic
// mode. The block that holds a complete row can write it in fp8.
namespace baton::cuda {
namespace {

constexpr int kHeadDim = 128;
constexpr int kQueryBytes = kHeadDim * static_cast<int>(sizeof(__nv_bfloat16));
// Shared memory of an SM: all of it, and the rings of its thread blocks.
constexpr int kSharedBytesOfSm = 228 << 10;
constexpr int kRingBytes = 160 << 10;
// Shared memory of a thread block beside Memory::kBytes: the barriers, the Exchange and 1 KB that
// the system reserves.
constexpr int kOtherBytes = 2 << 10;
constexpr int kMaxStages = 10;
constexpr int kQuerySlots = 2;

struct Arguments {
  StreamKWork work;
  DecodeArguments call;
  uint8_t* fp8_out;  // [row][q head][dim]; replaces call.out
  float* scales;     // [row]
};

// Consecutive units of one row in a work tile: a part of the row.
struct Segment {
  int listed;
  StreamKRow row;
  int first;  // in units
  int end;

  __device__ __forceinline__ int newest() const { return (row.end - 1) / kUnit; }
  __device__ __forceinline__ bool whole() const { return row.parts == 1; }
  __device__ __forceinline__ int part() const {
    return row.split_units > 0 ? (first - row.begin / kUnit) / row.split_units
                               : static_cast<int>(blockIdx.x) - row.first_tile;
  }
};

// Calls use(segment) for each part of a row in a work tile.
template <class Use>
__device__ __forceinline__ void ForEachSegment(const StreamKWork& work,
                                               const WorkTile& work_tile,
                                               const Use& use) {
  Segment segment;
  segment.listed = work_tile.listed;
  segment.row = work_tile.row;
  StreamKRow next;
  int skipped = work_tile.unit;
  for (int left = work_tile.units; left > 0;) {
    const int first = segment.row.begin / kUnit;
    segment.first = first + skipped;
    segment.end = min(segment.first + left, segment.newest() + 1);
    if (segment.row.split_units > 0) {
      segment.end = min(segment.end, segment.first + segment.row.split_units);
    }
    left -= segment.end - segment.first;
    const bool is_last = segment.end > segment.newest();
    // Loaded early, because the latency is high while the kernel streams.
    if (left > 0 && is_last) next = work.list[segment.listed + 1];
    use(segment);
    skipped = is_last ? 0 : segment.end - first;
    if (is_last) {
      ++segment.listed;
      segment.row = next;
    }
  }
}

// Values that the consumer warps exchange. There are two slots: a warp that writes a slot has
// passed the barrier of the other one, and with it the last reads of this slot.
template <int kHeads>
struct Exchange {
  uint32_t arrived[2];
  float largest[2][kHeads];
};

// Shared memory of a thread block. Every slot has two barriers. The ring's stages hold K or V of a
// unit; two more slots hold the queries of one row and of the next.
template <class Kv, int kHeads>
struct Memory {
  static constexpr int kBlocksPerSm = StreamKBlocksOfSm(kHeads, kIsFp8<Kv>);
  static constexpr int kUnitBytes = kUnit * kHeadDim * static_cast<int>(sizeof(Kv));
  static constexpr int kStageBytes = kHeads * kUnitBytes;
  static constexpr int kFittingStages = kRingBytes / kBlocksPerSm / kStageBytes;
  static constexpr int kStages = kFittingStages < kMaxStages ? kFittingStages : kMaxStages;
  static constexpr int kSlots = kStages + kQuerySlots;
  static constexpr int kQueriesBytes = kHeads * kMaxQueries * kQueryBytes;
  static constexpr int kBytes = kStages * kStageBytes + kQuerySlots * kQueriesBytes;
  static_assert(kBlocksPerSm * (kBytes + kOtherBytes) <= kSharedBytesOfSm);

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

// The block numbers of a row's units: 32 at a time, one per lane, and the next 32 prefetched.
class BlockTable {
 public:
  // Starts at segment.first.
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
                                      const StreamKRow& row,
                                      int first,
                                      int end) {
    const int unit = first + static_cast<int>(threadIdx.x);
    if (unit < end) next_ = tables[row.table_start + unit];
  }

  int now_ = 0;
  int next_ = 0;
};

// The producer warp.
template <class Kv, int kHeads>
class Producer {
 public:
  __device__ __forceinline__ Producer(const Arguments& a, const Memory<Kv, kHeads>& memory)
      : a_(a),
        memory_(memory),
        first_head_(static_cast<int>(blockIdx.y) * kHeads),
        lane_(static_cast<int>(threadIdx.x)) {}

  __device__ __forceinline__ void Run(const WorkTile& work_tile) {
    const std::byte* keys = a_.call.keys + first_head_ * a_.call.head_stride;
    bool is_first = true;
    ForEachSegment(a_.work, work_tile, [&](const Segment& segment) {
      if (is_first) {
        first_row_ = segment.row.row;
      } else {
        WaitForQueries();
        LoadQueries(segment.row.row);
      }
      is_first = false;
      BlockTable blocks;
      blocks.Begin(a_.work.tables, segment);
      for (int unit = segment.first; unit < segment.end; ++unit) {
        const std::byte* at =
            keys + blocks.At(a_.work.tables, segment, unit) * a_.call.block_stride;
        if (unit >= segment.row.stored / kUnit) WaitForQueries();
        LoadStage(at);
        LoadStage(at + a_.call.value_offset);
      }
    });
    if (work_tile.units > 0) WaitForQueries();
  }

 private:
  using M = Memory<Kv, kHeads>;

  // Waits for the predecessor kernel, which writes the queries and the KV of this step.
  __device__ __forceinline__ void WaitForQueries() {
    if (awaited_) return;
    WaitForPredecessor();
    awaited_ = true;
    LoadQueries(first_row_);
  }

  __device__ __forceinline__ void LoadStage(const std::byte* from) {
    if (reused_) {
      WaitForQueries();  // without queries the consumers release no stage
      WaitBarrier(memory_.Empty(cursor_.slot), cursor_.parity ^ 1);
    }
    if (lane_ == 0) {
      ArriveExpectTx(memory_.Full(cursor_.slot), M::kStageBytes);
      BulkCopy(memory_.Stage(cursor_.slot), from, M::kStageBytes, memory_.Full(cursor_.slot));
    }
    cursor_.Advance(1, M::kStages);
    reused_ = reused_ || cursor_.slot == 0;
  }

  __device__ __forceinline__ void LoadQueries(int row) {
    const int slot = M::kStages + queries_.slot;
    if (queries_reused_) WaitBarrier(memory_.Empty(slot), queries_.parity ^ 1);
    const DecodeArguments& call = a_.call;
    const uint32_t bytes = static_cast<uint32_t>(kHeads * call.group * kQueryBytes);
    if (lane_ == 0) {
      ArriveExpectTx(memory_.Full(slot), bytes);
      BulkCopy(memory_.Queries(queries_.slot),
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

// Where the partial result of a part is stored, for one KV head.
struct PartialSlot {
  float* values;  // [query][dim]
  float* lse;     // [query]

  __device__ __forceinline__ PartialSlot(const Arguments& a, int index, int kv_head) {
    const int64_t head = (int64_t{index} * a.call.kv_heads + kv_head) * a.call.group;
    values = a.work.partial.values + head * kHeadDim;
    lse = a.work.partial.lse + head;
  }
};

// A consumer warp: attention of one KV head.
template <class Kv, int kHeads>
class Consumer {
 public:
  __device__ __forceinline__ Consumer(const Arguments& a, const Memory<Kv, kHeads>& memory)
      : a_(a),
        memory_(memory),
        lane_(static_cast<int>(threadIdx.x)),
        head_(static_cast<int>(threadIdx.y)),
        kv_head_(static_cast<int>(blockIdx.y) * kHeads + head_) {}

  __device__ __forceinline__ void Run(const WorkTile& work_tile) {
    const DecodeArguments& call = a_.call;
    const bool scaled = call.kv_scales != nullptr;
    const float score_scale = scaled ? call.scale * call.kv_scales[kv_head_] : call.scale;
    const float value_scale = scaled ? call.kv_scales[call.kv_heads + kv_head_] : 1.0f;
    DecodeWarp<kHeadDim, Kv> work;
    WaitForPredecessor();
    ForEachSegment(a_.work, work_tile, [&](const Segment& segment) {
      const StreamKRow& row = segment.row;
      work.Reset();
      UseSlot(M::kStages + queries_.slot, queries_.parity, [&] {
        const int offset = head_ * call.group * kQueryBytes;
        work.LoadQueries(RowsInShared{memory_.Queries(queries_.slot) + offset}, call.group);
      });
      queries_.Advance(1, kQuerySlots);
      for (int unit = segment.first; unit < segment.end; ++unit) {
        UseStage([&](const RowsInShared& rows) {
          work.LoadKeys(rows);
          work.Score(unit * kUnit, row.begin, row.end, score_scale);
        });
        work.Softmax();
        UseStage([&](const RowsInShared& rows) {
          work.LoadValues(rows);
          work.AccumulateValues(unit * kUnit, row.end);
        });
      }
      if (!segment.whole() && !CombineParts(segment, value_scale, work)) return;
      const int64_t columns = int64_t{kv_head_} * call.group * kHeadDim;
      if (a_.fp8_out == nullptr) {
        work.WriteRows(call.out + row.row * call.out_stride + columns, call.group, value_scale);
        return;
      }
      const float largest = LargestOfRow(work.LargestOfRows(call.group, value_scale));
      if (head_ == 0 && lane_ == 0) a_.scales[row.row] = largest / kLargestFp8;
      const int64_t row_bytes = int64_t{kHeads} * call.group * kHeadDim;
      work.WriteRows(a_.fp8_out + row.row * row_bytes + columns,
                     call.group,
                     value_scale,
                     QuantizingFactor(largest));
    });
  }

 private:
  using M = Memory<Kv, kHeads>;

  // Waits until the slot is full and calls `use`. The slot is empty again when all consumers have
  // arrived.
  template <class Use>
  __device__ __forceinline__ void UseSlot(int slot, uint32_t parity, const Use& use) {
    WaitBarrier(memory_.Full(slot), parity);
    use();
    // An arrival does not wait for outstanding loads from shared memory. Without the fence, the
    // next stage overwrote bytes before they were read (seen on an H200). Each lane arrives for
    // itself: as fast as one arrival per warp after a __syncwarp, and racecheck can follow it.
    __threadfence_block();
    Arrive(memory_.Empty(slot));
  }
  template <class Use>
  __device__ __forceinline__ void UseStage(const Use& use) {
    UseSlot(cursor_.slot, cursor_.parity, [&] {
      use(RowsInShared{memory_.Stage(cursor_.slot) + static_cast<uint32_t>(head_ * M::kUnitBytes)});
    });
    cursor_.Advance(1, M::kStages);
  }

  // For a row with several parts. Returns true when `work` holds the combined result of all parts;
  // else the partial result was stored for whoever combines them.
  __device__ __forceinline__ bool CombineParts(const Segment& segment,
                                               float value_scale,
                                               DecodeWarp<kHeadDim, Kv>& work) {
    const StreamKRow& row = segment.row;
    const int group = a_.call.group;
    const int part = segment.part();
    const PartialSlot own(a_, row.first_partial + part, kv_head_);
    if (row.split_units > 0 || row.parts > kMaxPartsCombinedInKernel) {
      work.WritePartial(own.values, own.lse, group, value_scale);
      return false;
    }
    uint32_t* ticket = a_.work.tickets + segment.listed * gridDim.y + blockIdx.y;
    const auto other_tiles = static_cast<uint32_t>(row.parts) - 1;
    // When all other work tiles have arrived, this partial result is not stored.
    if (Broadcast([&] { return LoadAcquire(ticket); }) != other_tiles) {
      work.WritePartial(own.values, own.lse, group, 1);
      SyncHeads();
      if (Broadcast([&] { return ArriveAtTicket(ticket); }) != other_tiles) return false;
    }
    work.AddPartials(row.parts - 1, group, [&](int i) {
      return PartialSlot(a_, row.first_partial + (i < part ? i : i + 1), kv_head_);
    });
    if (head_ == 0 && lane_ == 0) *ticket = 0;
    return true;
  }

  // Broadcasts the result of ask() in one thread to all consumer warps.
  template <class Ask>
  __device__ __forceinline__ uint32_t Broadcast(const Ask& ask) {
    uint32_t& arrived = memory_.exchange->arrived[slot_];
    slot_ ^= 1;
    if (head_ == 0 && lane_ == 0) arrived = ask();
    SyncHeads();
    return arrived;
  }
  // The largest magnitude of the whole row.
  __device__ __forceinline__ float LargestOfRow(float of_head) {
    float* const largest = memory_.exchange->largest[slot_];
    slot_ ^= 1;
    if (lane_ == 0) largest[head_] = of_head;
    SyncHeads();
    return LargestOverWarp(largest[lane_ % kHeads]);
  }
  // Synchronises all consumer warps of the block.
  static __device__ __forceinline__ void SyncHeads() {
    asm volatile("barrier.sync 1, %0;" ::"n"(kHeads * 32) : "memory");
  }

  // Both operations order the memory accesses of the whole block, because a barrier of the consumer
  // warps precedes and follows them.
  static __device__ __forceinline__ uint32_t LoadAcquire(const uint32_t* from) {
    uint32_t value = 0;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
    return value;
  }
  static __device__ __forceinline__ uint32_t ArriveAtTicket(uint32_t* ticket) {
    uint32_t arrived = 0;
    asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], 1;"
                 : "=r"(arrived)
                 : "l"(ticket)
                 : "memory");
    return arrived;
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

// Grid [work tile][group of KV heads], block [lane][KV head, then the producer].
template <class Kv, int kHeads>
__global__ void __launch_bounds__((kHeads + 1) * 32, Memory<Kv, kHeads>::kBlocksPerSm)
    StreamKAttention(const __grid_constant__ Arguments a) {
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
    FenceBarrierInit();
  }
  const WorkTile work_tile = a.work.work_tiles[blockIdx.x];
  __syncthreads();
  ReleaseSuccessor();
  if (threadIdx.y == kHeads) {
    Producer<Kv, kHeads>(a, memory).Run(work_tile);
  } else {
    Consumer<Kv, kHeads>(a, memory).Run(work_tile);
  }
#endif
}

template <class Kv, int kHeads>
struct Kernel {
  static constexpr auto kFunction = StreamKAttention<Kv, kHeads>;
  static constexpr int kSharedBytes = Memory<Kv, kHeads>::kBytes;

  static cudaError_t Prepare() {
    const cudaError_t error =
        cudaFuncSetAttribute(kFunction, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes);
    if (error != cudaSuccess || Memory<Kv, kHeads>::kBlocksPerSm == 1) return error;
    // All blocks of an SM must find room in its shared memory.
    return cudaFuncSetAttribute(
        kFunction, cudaFuncAttributePreferredSharedMemoryCarveout, cudaSharedmemCarveoutMaxShared);
  }

  static cudaError_t Launch(const Arguments& a, const AttentionLaunch& call) {
    return LaunchOverlapped(kFunction,
                            dim3(a.work.count, call.shape.kv_heads / kHeads),
                            dim3(32, kHeads + 1),
                            kSharedBytes,
                            call.stream,
                            a);
  }
};

// Calls `use` with the kernel for thread blocks of `heads` KV heads.
template <class Kv, class Use>
cudaError_t With(int heads, const Use& use) {
  if (heads == 8) return use(Kernel<Kv, 8>());
  if (heads == 4) return use(Kernel<Kv, 4>());
  if (heads == 2) return use(Kernel<Kv, 2>());
  return use(Kernel<Kv, 1>());
}
template <class Use>
cudaError_t With(int heads, bool fp8, const Use& use) {
  return fp8 ? With<__nv_fp8_e4m3>(heads, use) : With<__nv_bfloat16>(heads, use);
}

}  // namespace

bool StreamKWritesFp8(const AttentionShape& shape) {
  return StreamKHeadGroups(shape) == 1;
}

cudaError_t PrepareStreamKAttention() {
  for (const int heads : {1, 2, 4, 8}) {
    for (const bool fp8 : {false, true}) {
      const cudaError_t error = With(heads, fp8, [](auto kernel) { return kernel.Prepare(); });
      if (error != cudaSuccess) return error;
    }
  }
  return cudaSuccess;
}

cudaError_t LaunchStreamKAttention(const StreamKWork& work, const AttentionLaunch& call) {
  const Arguments a = {work,
                       DecodeArgumentsOf(call, work.tables),
                       reinterpret_cast<uint8_t*>(call.fp8_out.data),
                       call.fp8_out.scales};
  return With(StreamKHeadsOfBlock(call.shape.kv_heads),
              call.kv.dtype == DType::kFp8,
              [&](auto kernel) { return kernel.Launch(a, call); });
}

}  // namespace baton::cuda
