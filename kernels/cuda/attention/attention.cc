#include "kernels/cuda/attention/attention.h"

#include <algorithm>
#include <span>
#include <utility>

#include "kernels/cuda/attention/capped_kernels.h"
#include "kernels/cuda/attention/rows_alone.h"
#include "kernels/cuda/device/cuda_status.h"
#include "kernels/cuda/primitives/rounding.h"

namespace baton::cuda {
namespace {

constexpr int32_t kDecodeTile = 16;
// Split sizes in deterministic mode, for FlashAttention 2 and for clusters.
constexpr int32_t kFixedSplit = 1024;
constexpr int32_t kFixedClusterSplit = 640;
// The smallest split size when there are more clusters than are resident at once.
constexpr int32_t kCrowdedSplit = 1024;

template <class T>
const T* Write(StepBuffer& fixed, const std::vector<T>& values) {
  return fixed.Write(std::span<const T>(values));
}

Status CheckShape(const AttentionShape& shape, const KvView& kv) {
  if (shape.kv_heads < 1 || shape.q_heads < 1 || shape.q_heads % shape.kv_heads != 0) {
    return InvalidArgument("attention: {} query heads over {} KV heads; it must be a multiple",
                           shape.q_heads,
                           shape.kv_heads);
  }
  if (kv.kv_heads != shape.kv_heads || kv.head_dim != shape.head_dim) {
    return InvalidArgument("attention: {} KV heads of {} over a cache of {} of {}",
                           shape.kv_heads,
                           shape.head_dim,
                           kv.kv_heads,
                           kv.head_dim);
  }
  for (const int64_t stride : {kv.block_stride, kv.layer_stride, kv.value_offset, kv.head_stride}) {
    if (stride % 16 != 0) {
      return InvalidArgument("attention: a KV stride of {} bytes; it must be a multiple of 16",
                             stride);
    }
  }
  return OkStatus();
}

// Prepares the cluster kernel and counts its resident clusters. Whether the device has clusters of
// all sizes: some architectures have none of 16 thread blocks.
bool CountClusters(DecodeLimits& limits) {
  if (PrepareClusterAttention() != cudaSuccess) return false;
  for (int32_t i = 0; i < 4; ++i) {
    auto& active = limits.active_clusters;
    if (CountActiveClusters(64, 2 << i, &active[0][i]) != cudaSuccess || active[0][i] == 0 ||
        CountActiveClusters(128, 2 << i, &active[1][i]) != cudaSuccess || active[1][i] == 0) {
      return false;
    }
  }
  return true;
}

// Lets whole contexts be combined as if each were a split.
void CombineWhole(std::span<const AttentionSequence> sequences,
                  int32_t padded_rows,
                  PagedTiles& work_tiles) {
  if (!work_tiles.combined.empty()) return;
  for (const AttentionSequence& sequence : sequences) {
    work_tiles.out_starts[sequence.index] = work_tiles.partials;
    for (int32_t row = 0; row < sequence.rows; ++row) {
      work_tiles.combined.push_back({sequence.row + row, work_tiles.partials++, 1});
    }
  }
  if (padded_rows == 0) return;
  work_tiles.combined.resize(padded_rows);
  work_tiles.partials = padded_rows;
}

// Whether the stream-K kernel writes all rows.
bool OnlyStreamK(const AttentionPlan& plan) {
  return plan.work_tiles.count > 0 && plan.work_tiles.combine.rows == 0 &&
         plan.rows.work_tiles == 0 && plan.chunks.work_tiles == 0 && plan.ragged.empty();
}

}  // namespace

DecodeLimits FindDecodeLimits(const DeviceProperties& device) {
  DecodeLimits limits = LimitsOf(device);
  if (limits.clusters && !CountClusters(limits)) {
    limits.clusters = false;
    cudaGetLastError();  // clears it
  }
  return limits;
}

StatusOr<std::unique_ptr<Attention>> Attention::Create(const DeviceProperties& device,
                                                       const AttentionOptions& options) {
  std::unique_ptr<Attention> attention(new Attention());
  attention->options_ = options;
  attention->limits_ = FindDecodeLimits(device);
  BATON_CUDA_RETURN_IF_ERROR(PrepareDecodeAttention());
  BATON_CUDA_RETURN_IF_ERROR(PrepareChunkAttention());
  BATON_CUDA_RETURN_IF_ERROR(PrepareFp8Attention());
  BATON_CUDA_RETURN_IF_ERROR(PrepareCappedPagedAttention());
  if (attention->limits_.clusters) BATON_CUDA_RETURN_IF_ERROR(PrepareCappedClusterAttention());
  if (MayRun(RowOf(KernelId::kStreamK).family, device)) {
    BATON_CUDA_RETURN_IF_ERROR(PrepareStreamKAttention());
  }
  if (options.deterministic && MayRun(RowOf(KernelId::kFlash3).family, device)) {
    // Whether this memory is free must not decide which kernel computes a row.
    BATON_RETURN_IF_ERROR(attention->gathered_.Get(options.gather_bytes).status());
  }
  return attention;
}

// In deterministic fp8 mode, rows must see only cached (rounded) K and V, because the step's own K
// and V depend on how the prompt was chunked.
bool Attention::GathersAll(const KvView& kv) const {
  return options_.deterministic && kv.dtype == DType::kFp8;
}

std::vector<Attention::RaggedGroup> Attention::RaggedGroups(const AttentionShape& shape,
                                                            const KvView& kv) const {
  const bool cached = GathersAll(kv) || std::ranges::any_of(many_, [](const auto& sequence) {
                        return sequence.length > sequence.rows;
                      });
  if (!cached) return {{many_, false, 0}};
  const size_t token_bytes = size_t{4} * shape.kv_heads * shape.head_dim;
  std::vector<RaggedGroup> groups;
  size_t begin = 0;
  size_t gathered = 0;
  for (size_t i = 0; i < many_.size(); ++i) {
    const size_t bytes = RoundUp(many_[i].length, kGatherAlignment) * token_bytes;
    if (i > begin && gathered + bytes > options_.gather_bytes) {
      groups.push_back({std::span(many_).subspan(begin, i - begin), true, gathered});
      begin = i;
      gathered = 0;
    }
    gathered += bytes;
  }
  groups.push_back({std::span(many_).subspan(begin), true, gathered});
  return groups;
}

bool Attention::UsesRagged(const AttentionShape& shape,
                           const KvView& kv,
                           std::span<const RaggedGroup> groups) {
  ChunkBatch chunks;
  chunks.count = static_cast<int32_t>(many_.size());
  for (const AttentionSequence& sequence : many_) {
    chunks.tiles += CeilDiv(sequence.rows, HopperTile(shape.head_dim));
    chunks.longest = std::max(chunks.longest, sequence.length);
  }
  const KernelRequest request =
      ChunksRequest(HeadsOf(shape), kv, limits_, chunks, options_.deterministic);
  const KernelRule* const rule = Choose(request, limits_.device);
  if (rule == nullptr || rule->kernel != KernelId::kFlash3) return false;
  // When memory is short, chunks read their blocks in place instead of a gathered copy. The bits
  // would differ, so deterministic mode fails instead.
  return options_.deterministic ||
         gathered_.Get(std::ranges::max(groups, {}, &RaggedGroup::gathered).gathered).ok();
}

StatusOr<AttentionPlan> Attention::Plan(const AttentionShape& shape,
                                        const StepLayout& step,
                                        const KvView& kv,
                                        StepBuffer& fixed) {
  BATON_RETURN_IF_ERROR(CheckShape(shape, kv));
  const KernelRequest request = FewRowsRequest(HeadsOf(shape), kv, options_.deterministic);
  BATON_RETURN_IF_ERROR(CheckChoice(request, limits_.device));
  const bool paged = Runs(KernelId::kFlash2Rows, request, limits_.device);
  const int32_t max_few = MaxFewRows(HeadsOf(shape), options_.deterministic);
  const GroupLayout& group = step.groups[shape.cache_group];
  singles_.clear();
  few_.clear();
  many_.clear();
  for (const AttentionSequence& sequence :
       SequencesToCompute(*step.input, group.table_starts, shape.only_logit_rows)) {
    auto& list = !paged                     ? few_
                 : sequence.rows == 1       ? singles_
                 : sequence.rows <= max_few ? few_
                                            : many_;
    list.push_back(sequence);
  }
  AttentionPlan plan;
  plan.shape = shape;
  if (!paged) {
    BATON_ASSIGN_OR_RETURN(plan.portable, PlanPortable(shape, step, fixed));
    return plan;
  }
  std::vector<int32_t> row_starts(step.sequences + 1,
                                  static_cast<int32_t>(step.input->tokens.size()));
  std::vector<int32_t> last_tokens(step.sequences, 0);
  for (size_t i = 0; i < step.input->sequences.size(); ++i) {
    const SequenceRows& rows = step.input->sequences[i];
    row_starts[i] = rows.first_row;
    last_tokens[i] = (rows.context + rows.row_count - 1) % kv.block_tokens + 1;
  }
  SequenceTables tables;
  tables.sequences = step.sequences;
  tables.tables = step.d_tables;
  tables.table_starts = group.d_table_starts;
  tables.row_starts = Write(fixed, row_starts);
  tables.last_tokens = Write(fixed, last_tokens);
  if (!many_.empty()) {
    BATON_RETURN_IF_ERROR(PlanChunks(shape, step, kv, tables, fixed, plan));
  }
  const auto launched = step.recorded ? step.rows : static_cast<int32_t>(singles_.size());
  const DecodeBatch rows = DecodeBatchOf(singles_, shape.window, launched);
  const DecodeKernel decode = singles_.empty()
                                  ? DecodeKernel::kFlash2
                                  : ChooseDecodeKernel(options_, limits_, shape, kv, rows);
  if (decode == DecodeKernel::kCluster) {
    plan.cluster = PlanCluster(shape, step, kv, rows, fixed);
  } else if (decode == DecodeKernel::kStreamK) {
    BATON_ASSIGN_OR_RETURN(plan.work_tiles, PlanStreamK(shape, step, kv, fixed));
  } else {
    few_.insert(few_.end(), singles_.begin(), singles_.end());
  }
  if (!few_.empty()) {
    BATON_ASSIGN_OR_RETURN(plan.rows, PlanPaged(shape, step, kDecodeTile, tables, fixed));
  }
  return plan;
}

Status Attention::PlanChunks(const AttentionShape& shape,
                             const StepLayout& step,
                             const KvView& kv,
                             const SequenceTables& tables,
                             StepBuffer& fixed,
                             AttentionPlan& plan) {
  const std::vector<RaggedGroup> groups = RaggedGroups(shape, kv);
  if (!UsesRagged(shape, kv, groups)) {
    plan.rows_alone = options_.deterministic;
    BATON_ASSIGN_OR_RETURN(plan.chunks,
                           PlanPaged(shape, step, ChunkTile(shape.head_dim), tables, fixed));
    return OkStatus();
  }
  for (const RaggedGroup& group : groups) {
    BATON_ASSIGN_OR_RETURN(plan.ragged.emplace_back(), PlanRagged(group, shape, step, kv, fixed));
  }
  return OkStatus();
}

ClusterWork Attention::PlanCluster(const AttentionShape& shape,
                                   const StepLayout& step,
                                   const KvView& kv,
                                   const DecodeBatch& rows,
                                   StepBuffer& fixed) {
  // With more rows than are resident at once, only the rows that would finish last are split.
  const int64_t average = rows.total / rows.count;
  const auto fair = static_cast<int32_t>(std::max<int64_t>(kCrowdedSplit, 2 * average));
  const int32_t most = MaxClusterSplits(limits_, HeadsOf(shape), rows);
  ClusterWork work;
  work.rows = rows.launched;
  // With fixed splits each row is split by its own length, else all rows by the longest.
  const auto splits_of = [&](int32_t positions) {
    if (!options_.deterministic && kv.dtype == DType::kFp8 && most == 0) {
      return SplitsOfCluster(positions, fair, INT32_MAX);
    }
    return options_.deterministic ? SplitsOfCluster(positions, kFixedClusterSplit, INT32_MAX)
                                  : SplitsOfCluster(rows.longest, kShortClusterSplit, most);
  };
  decode_rows_.clear();
  for (const AttentionSequence& s : singles_) {
    const int32_t visible = VisiblePositions(s.length, shape.window);
    decode_rows_.push_back(
        {s.row, s.table_start, s.length - visible, s.length, s.stored, splits_of(visible)});
    work.splits = std::max(work.splits, decode_rows_.back().splits);
  }
  const bool crowded = most < work.splits;
  work.warps = crowded || options_.deterministic ? 4 : 8;
  if (crowded) {  // longest first
    std::stable_sort(
        decode_rows_.begin(), decode_rows_.end(), [](const DecodeRow& a, const DecodeRow& b) {
          return a.end - a.begin > b.end - b.begin;
        });
  }
  decode_rows_.resize(rows.launched);
  work.list = Write(fixed, decode_rows_);
  work.tables = step.d_tables;
  return work;
}

StatusOr<StreamKWork> Attention::PlanStreamK(const AttentionShape& shape,
                                             const StepLayout& step,
                                             const KvView& kv,
                                             StepBuffer& fixed) {
  StreamKWork work;
  work.count = StreamKTileCount(limits_, HeadsOf(shape), kv);
  stream_k_rows_.clear();
  for (const AttentionSequence& s : singles_) {
    const int32_t begin = s.length - VisiblePositions(s.length, shape.window);
    stream_k_rows_.push_back({s.row, s.table_start, begin, s.length, s.stored});
  }
  const bool fixed_splits = options_.deterministic;
  int32_t partials = 0;  // upper bound for every step of the same class, as max_combined
  int32_t max_combined = 0;
  if (fixed_splits) {
    partials = SplitFixed(stream_k_rows_, work.count, work_tiles_);
    if (StreamKBlocksPerSm(shape, kv) > 1) SpreadOverSms(work_tiles_);
    if (step.recorded) partials = PowerOfTwo(partials);
    max_combined = step.rows;
  } else {
    SplitStreamK(stream_k_rows_, work.count, work_tiles_);
    const auto rows = step.recorded ? step.rows : static_cast<int32_t>(stream_k_rows_.size());
    partials = work.count + rows;
    // Neighbours have one work tile in common.
    max_combined = (work.count - 1) / kMaxPartsCombinedInKernel;
  }
  std::vector<CombinedRow> combined =
      RowsOfManyParts(stream_k_rows_, fixed_splits ? 1 : kMaxPartsCombinedInKernel);
  if (step.recorded) {
    stream_k_rows_.resize(step.rows);
    if (!combined.empty()) combined.resize(max_combined);
  }
  work.list = Write(fixed, stream_k_rows_);
  work.work_tiles = Write(fixed, work_tiles_);
  work.tables = step.d_tables;
  BATON_ASSIGN_OR_RETURN(work.partial, Partials(shape, partials));
  BATON_ASSIGN_OR_RETURN(work.combine, PlanCombine(shape, combined, partials, fixed));
  work.combine.many_splits = !fixed_splits && work.combine.rows > 0;
  BATON_ASSIGN_OR_RETURN(
      std::byte* const tickets,
      tickets_.Get(stream_k_rows_.size() * StreamKHeadGroups(shape) * sizeof(uint32_t)));
  work.tickets = reinterpret_cast<uint32_t*>(tickets);
  return work;
}

StatusOr<PagedWork> Attention::PlanPaged(const AttentionShape& shape,
                                         const StepLayout& step,
                                         int32_t tile,
                                         const SequenceTables& tables,
                                         StepBuffer& fixed) {
  const bool decode = tile == kDecodeTile;
  PagedLimits limits;
  limits.tile = tile;
  limits.group = shape.group();
  limits.window = shape.window;
  limits.slots = std::max(1, 2 * limits_.device.sm_count / shape.kv_heads);
  if (options_.deterministic) limits.fixed_split = decode ? kFixedSplit : INT32_MAX / 2;
  limits.padded_rows = step.recorded ? step.rows : 0;
  limits.sequences = step.sequences;
  PagedTiles& work_tiles = paged_tiles_;
  SplitPaged(decode ? few_ : many_, limits, work_tiles);
  // In deterministic mode, a sink joins a row's sum in one place, however long the other rows are.
  if (decode && options_.deterministic && shape.has_sinks) {
    CombineWhole(few_, limits.padded_rows, work_tiles);
  }
  PagedWork work;
  work.tile = tile;
  work.work_tiles = static_cast<int32_t>(work_tiles.sequence.size());
  work.row_count = step.rows;
  work.sequence = Write(fixed, work_tiles.sequence);
  work.query_tile = Write(fixed, work_tiles.query_tile);
  work.split = Write(fixed, work_tiles.split);
  if (!work_tiles.valid.empty()) {
    work.valid = reinterpret_cast<const bool*>(Write(fixed, work_tiles.valid));
  }
  work.out_starts = Write(fixed, work_tiles.out_starts);
  work.split_tokens = fixed.Write(std::span<const int32_t>(&work_tiles.split_tokens, 1));
  work.sequences = tables;
  BATON_ASSIGN_OR_RETURN(work.combine,
                         PlanCombine(shape, work_tiles.combined, work_tiles.partials, fixed));
  return work;
}

StatusOr<RaggedWork> Attention::PlanRagged(const RaggedGroup& group,
                                           const AttentionShape& shape,
                                           const StepLayout& step,
                                           const KvView& kv,
                                           StepBuffer& fixed) {
  RaggedWork work;
  const int32_t block_tokens = kv.block_tokens;
  std::vector<int32_t> key_starts;
  std::vector<GatheredSequence> gathered;
  for (const AttentionSequence& sequence : group.chunks) {
    key_starts.push_back(group.cached ? work.gather.tokens : sequence.row);
    work.row_count = std::max(work.row_count, sequence.row + sequence.rows);
    if (!group.cached) continue;
    gathered.push_back({sequence.table_start, sequence.length, work.gather.tokens});
    const int32_t tokens = RoundUp(sequence.length, kGatherAlignment);
    work.gather.tokens += tokens;
    work.gather.max_blocks = std::max(work.gather.max_blocks, CeilDiv(tokens, block_tokens));
  }
  if (group.cached) {
    work.gather.sequences = static_cast<int32_t>(gathered.size());
    work.gather.list = Write(fixed, gathered);
    work.gather.tables = step.d_tables;
    BATON_ASSIGN_OR_RETURN(work.gather.to, gathered_.Get(group.gathered));
  }
  RaggedTiles& work_tiles = ragged_tiles_;
  ScheduleRagged(group.chunks,
                 key_starts,
                 HopperTile(shape.head_dim),
                 shape.q_heads,
                 limits_.device.sm_count,
                 work_tiles);
  work.work_tiles = static_cast<int32_t>(work_tiles.head.size());
  work.blocks = limits_.device.sm_count;
  work.starts = Write(fixed, work_tiles.starts);
  work.head = Write(fixed, work_tiles.head);
  work.query_tile = Write(fixed, work_tiles.query_tile);
  work.query_start = Write(fixed, work_tiles.query_start);
  work.query_rows = Write(fixed, work_tiles.query_rows);
  work.key_start = Write(fixed, work_tiles.key_start);
  work.keys = Write(fixed, work_tiles.keys);
  work.sequence = Write(fixed, work_tiles.sequence);
  return work;
}

StatusOr<PortableWork> Attention::PlanPortable(const AttentionShape& shape,
                                               const StepLayout& step,
                                               StepBuffer& fixed) {
  PortableTiles& work_tiles = portable_tiles_;
  const int32_t padded = step.recorded ? step.rows : 0;
  SplitPortable(few_, {shape.window, shape.chunk, padded}, work_tiles);
  PortableWork work;
  work.work_tiles = static_cast<int32_t>(work_tiles.list.size());
  work.list = Write(fixed, work_tiles.list);
  work.tables = step.d_tables;
  BATON_ASSIGN_OR_RETURN(work.combine,
                         PlanCombine(shape, work_tiles.combined, work_tiles.partials, fixed));
  return work;
}

StatusOr<CombineWork> Attention::PlanCombine(const AttentionShape& shape,
                                             const std::vector<CombinedRow>& combined,
                                             int32_t partials,
                                             StepBuffer& fixed) {
  CombineWork work;
  if (combined.empty()) return work;
  work.rows = static_cast<int32_t>(combined.size());
  work.list = Write(fixed, combined);
  BATON_ASSIGN_OR_RETURN(work.partial, Partials(shape, partials));
  return work;
}

StatusOr<PartialResults> Attention::Partials(const AttentionShape& shape, int32_t count) {
  const size_t heads = static_cast<size_t>(count) * shape.q_heads;
  BATON_ASSIGN_OR_RETURN(std::byte* const memory,
                         partial_.Get(heads * (shape.head_dim + 1) * sizeof(float)));
  auto* const values = reinterpret_cast<float*>(memory);
  return PartialResults{values, values + heads * shape.head_dim};
}

cudaError_t Attention::Launch(const AttentionPlan& plan, AttentionLaunch call) {
  const AttentionShape& shape = plan.shape;
  if (call.qkv.dtype != DType::kBF16 || call.out.dtype != DType::kBF16 ||
      call.out.stride != int64_t{shape.q_heads} * shape.head_dim) {
    return cudaErrorInvalidValue;
  }
  call.shape = shape;
  const bool writes_fp8 = OnlyStreamK(plan) && StreamKWritesFp8(shape);
  if (call.fp8_out.data != nullptr && !writes_fp8) {
    const Fp8Rows fp8_out = std::exchange(call.fp8_out, {});
    const cudaError_t error = LaunchKernels(plan, call);
    return error != cudaSuccess ? error : LaunchQuantize(call.out, fp8_out, call.stream);
  }
  return LaunchKernels(plan, call);
}

cudaError_t Attention::LaunchKernels(const AttentionPlan& plan, const AttentionLaunch& call) {
  const AttentionShape& shape = plan.shape;
  cudaError_t error = cudaSuccess;
  const auto then = [&](auto&& launch, const auto& work) {
    if (error == cudaSuccess) error = launch(work, call);
  };
  if (plan.portable.work_tiles > 0) {
    then(LaunchPortableAttention, plan.portable);
    if (plan.portable.combine.rows > 0) then(LaunchCombineSplits, plan.portable.combine);
    return error;
  }
  for (const RaggedWork& ragged : plan.ragged) {
    if (ragged.gather.sequences > 0) then(LaunchGather, ragged.gather);
    if (shape.head_dim == 64) then(LaunchHopperAttention64, ragged);
    if (shape.head_dim == 128) then(LaunchHopperAttention128, ragged);
    if (shape.head_dim == 256) then(LaunchHopperAttention256, ragged);
  }
  const bool fp8 = call.kv.dtype == DType::kFp8;
  if (plan.chunks.work_tiles > 0) {
    const auto rows_alone = fp8 ? LaunchFp8ChunkRowsAlone : LaunchChunkRowsAlone;
    const auto tiles = fp8 ? LaunchFp8ChunkAttention : LaunchChunkAttention;
    then(plan.rows_alone ? rows_alone : tiles, plan.chunks);
    if (plan.chunks.combine.rows > 0) then(LaunchCombineSplits, plan.chunks.combine);
  }
  if (plan.cluster.rows > 0) then(LaunchClusterAttention, plan.cluster);
  if (plan.work_tiles.count > 0) {
    then(LaunchStreamKAttention, plan.work_tiles);
    if (plan.work_tiles.combine.rows > 0) then(LaunchCombineSplits, plan.work_tiles.combine);
  }
  if (plan.rows.work_tiles > 0) {
    then(fp8 ? LaunchFp8DecodeAttention : LaunchDecodeAttention, plan.rows);
    if (plan.rows.combine.rows > 0) then(LaunchCombineSplits, plan.rows.combine);
  }
  return error;
}

}  // namespace baton::cuda
