#include "kernels/cuda/attention.h"

#include <algorithm>
#include <span>
#include <utility>

#include "kernels/cuda/cuda_status.h"
#include "kernels/cuda/rounding.h"

namespace baton::cuda {
namespace {

// Packed rows of a sequence that still go through 16-row tiles: its context is then split well.
constexpr int32_t kFewPackedRows = 64;
constexpr int32_t kDecodeTile = 16;
// Where contexts are split when rows must not depend on the batch, by tiles and by clusters.
constexpr int32_t kFixedPart = 1024;
constexpr int32_t kFixedClusterPart = 512;
// Where clusters split at the least when there are more of them than run at a time.
constexpr int32_t kCrowdedPart = 1024;
// Above this, or when memory is short, chunks read their blocks where they lie instead of a
// gathered copy.
constexpr int64_t kMaxGatheredBytes = int64_t{512} << 20;

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
  if (shape.head_dim < 8 || shape.head_dim > 256 || shape.head_dim % 8 != 0) {
    return InvalidArgument(
        "attention: heads of {} dimensions; it must be a multiple of 8 up to 256", shape.head_dim);
  }
  if (kv.kv_heads != shape.kv_heads || kv.head_dim != shape.head_dim) {
    return InvalidArgument("attention: {} KV heads of {} over a cache of {} of {}",
                           shape.kv_heads,
                           shape.head_dim,
                           kv.kv_heads,
                           kv.head_dim);
  }
  if (kv.dtype == DType::kF8 && shape.head_dim % 16 != 0) {
    return InvalidArgument(
        "attention: heads of {} dimensions in a cache of fp8; it must be a multiple of 16",
        shape.head_dim);
  }
  for (const int64_t stride : {kv.block_stride, kv.layer_stride, kv.part_stride, kv.head_stride}) {
    if (stride % 16 != 0) {
      return InvalidArgument("attention: a KV stride of {} bytes; it must be a multiple of 16",
                             stride);
    }
  }
  return OkStatus();
}

// Whether the kernel of equal shares gives all rows.
bool OnlyShares(const AttentionPlan& plan) {
  return plan.shares.count > 0 && plan.shares.merge.rows == 0 && plan.rows.pieces == 0 &&
         plan.chunks.pieces == 0 && plan.ragged.pieces == 0;
}

}  // namespace

StatusOr<std::unique_ptr<Attention>> Attention::Create(const AttentionOptions& options) {
  std::unique_ptr<Attention> attention(new Attention());
  attention->options_ = options;
  DecodeLimits& limits = attention->limits_;
  int device = 0;
  int major = 0;
  int minor = 0;
  BATON_CUDA_RETURN_IF_ERROR(cudaGetDevice(&device));
  BATON_CUDA_RETURN_IF_ERROR(
      cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
  BATON_CUDA_RETURN_IF_ERROR(
      cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device));
  BATON_CUDA_RETURN_IF_ERROR(
      cudaDeviceGetAttribute(&limits.processors, cudaDevAttrMultiProcessorCount, device));
  limits.architecture = 10 * major + minor;
  if (limits.architecture < 80) {
    return MakeStatus(StatusCode::kFailedPrecondition,
                      "attention: the GPU is of architecture sm_{}; it must be sm_80 or newer",
                      limits.architecture);
  }
  BATON_CUDA_RETURN_IF_ERROR(PrepareDecodeAttention());
  BATON_CUDA_RETURN_IF_ERROR(PrepareChunkAttention());
  BATON_CUDA_RETURN_IF_ERROR(PrepareQuantizedAttention());
  if (limits.architecture < 90) return attention;
  BATON_CUDA_RETURN_IF_ERROR(PrepareClusterAttention());
  // Others have no code of it, and some not its shared memory.
  if (limits.architecture == 90) BATON_CUDA_RETURN_IF_ERROR(PrepareShareAttention());
  for (int32_t i = 0; i < 4; ++i) {
    auto& active = limits.active_clusters;
    BATON_CUDA_RETURN_IF_ERROR(CountActiveClusters(64, 2 << i, &active[0][i]));
    BATON_CUDA_RETURN_IF_ERROR(CountActiveClusters(128, 2 << i, &active[1][i]));
  }
  return attention;
}

bool Attention::TakesPaged(const AttentionShape& shape, const KvView& kv) const {
  const auto bytes = static_cast<int64_t>(ShapeOf(kv.dtype).bytes);
  return (kv.dtype == DType::kBF16 || kv.dtype == DType::kF8) &&
         kv.block_stride / bytes <= int64_t{UINT32_MAX} &&
         (shape.head_dim == 64 || shape.head_dim == 128 || shape.head_dim == 256);
}

// Rounded keys and values are not those of the step: rows that must not depend on how a prompt is
// cut may see nothing else.
bool Attention::GathersAll(const KvView& kv) const {
  return options_.deterministic && kv.dtype == DType::kF8;
}

// Of many_, in a shape that TakesPaged.
bool Attention::TakesRagged(const AttentionShape& shape, const KvView& kv) {
  if (limits_.architecture != 90) return false;
  int64_t tiles = 0;
  int64_t tokens = 0;
  int32_t longest = 0;
  bool cached = GathersAll(kv);
  for (const AttendingSequence& sequence : many_) {
    cached = cached || sequence.length > sequence.rows;
    tiles += CeilDiv(sequence.rows, HopperTile(shape.head_dim));
    tokens += RoundUp(sequence.length, kGatherAlignment);
    longest = std::max(longest, sequence.length);
  }
  if (shape.window > 0 && shape.window < longest) return false;
  // With less, most of the device would wait for a few long tiles, which FlashAttention 2 splits.
  if (!options_.deterministic && 2 * tiles * shape.q_heads < limits_.processors) return false;
  const int64_t bytes = 4 * tokens * shape.kv_heads * shape.head_dim;
  return !cached || (bytes <= kMaxGatheredBytes && gathered_.Get(bytes).ok());
}

StatusOr<AttentionPlan> Attention::Plan(const AttentionShape& shape,
                                        const StepLayout& step,
                                        const KvView& kv,
                                        StepBuffer& fixed) {
  BATON_RETURN_IF_ERROR(CheckShape(shape, kv));
  const bool paged = TakesPaged(shape, kv);
  const int32_t few_rows = options_.deterministic ? 1 : std::max(1, kFewPackedRows / shape.group());
  singles_.clear();
  few_.clear();
  many_.clear();
  for (size_t i = 0; i < step.input->sequences.size(); ++i) {
    const SequenceRows& rows = step.input->sequences[i];
    const AttendingSequence sequence = {static_cast<int32_t>(i),
                                        rows.first_row,
                                        rows.row_count,
                                        rows.context + rows.row_count,
                                        step.table_starts[i]};
    auto& list = !paged                       ? few_
                 : rows.row_count == 1        ? singles_
                 : rows.row_count <= few_rows ? few_
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
  tables.table_starts = step.d_table_starts;
  tables.row_starts = Write(fixed, row_starts);
  tables.last_tokens = Write(fixed, last_tokens);
  if (!many_.empty() && TakesRagged(shape, kv)) {
    BATON_ASSIGN_OR_RETURN(plan.ragged, PlanRagged(shape, step, kv, fixed));
  } else if (!many_.empty()) {
    BATON_ASSIGN_OR_RETURN(plan.chunks,
                           PlanPaged(shape, step, ChunkTile(shape.head_dim), tables, fixed));
  }
  const auto launched = step.recorded ? step.rows : static_cast<int32_t>(singles_.size());
  const DecodeRows rows = DecodeRowsOf(singles_, shape.window, launched);
  const DecodeKernel decode =
      singles_.empty() ? DecodeKernel::kTiles : ChooseDecode(options_, limits_, shape, kv, rows);
  if (decode == DecodeKernel::kCluster) {
    plan.cluster = PlanCluster(shape, step, kv, rows, fixed);
  } else if (decode == DecodeKernel::kShares) {
    BATON_ASSIGN_OR_RETURN(plan.shares, PlanShares(shape, step, fixed));
  } else {
    few_.insert(few_.end(), singles_.begin(), singles_.end());
  }
  if (!few_.empty()) {
    BATON_ASSIGN_OR_RETURN(plan.rows, PlanPaged(shape, step, kDecodeTile, tables, fixed));
  }
  return plan;
}

ClusterWork Attention::PlanCluster(const AttentionShape& shape,
                                   const StepLayout& step,
                                   const KvView& kv,
                                   const DecodeRows& rows,
                                   StepBuffer& fixed) {
  // Of more rows than run at a time, those that would be the last are cut.
  const int64_t average = rows.total / rows.count;
  const auto fair = static_cast<int32_t>(std::max<int64_t>(kCrowdedPart, 2 * average));
  const int32_t most = MostClusterParts(limits_, shape, rows);
  ClusterWork work;
  work.rows = rows.launched;
  // With fixed parts, of each row; else of all.
  const auto parts_of = [&](int32_t positions) {
    if (!options_.deterministic && kv.dtype == DType::kF8 && most == 0) {
      return ClusterParts(positions, fair, INT32_MAX);
    }
    return options_.deterministic ? ClusterParts(positions, kFixedClusterPart, INT32_MAX)
                                  : ClusterParts(rows.longest, kShortClusterPart, most);
  };
  decode_rows_.clear();
  for (const AttendingSequence& s : singles_) {
    const int32_t visible = VisiblePositions(s.length, shape.window);
    decode_rows_.push_back({s.row, s.table_start, s.length - visible, s.length, parts_of(visible)});
    work.parts = std::max(work.parts, decode_rows_.back().parts);
  }
  const bool crowded = most < work.parts;
  work.warps = crowded || options_.deterministic ? 4 : 8;
  if (crowded) {  // the longest begin first
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

StatusOr<ShareWork> Attention::PlanShares(const AttentionShape& shape,
                                          const StepLayout& step,
                                          StepBuffer& fixed) {
  ShareWork work;
  work.count = ShareCount(limits_, shape);
  shared_rows_.clear();
  for (const AttendingSequence& s : singles_) {
    const int32_t begin = s.length - VisiblePositions(s.length, shape.window);
    shared_rows_.push_back({s.row, s.table_start, begin, s.length});
  }
  CutShares(shared_rows_, work.count, shares_);
  std::vector<MergedRow> merged = RowsInManyShares(shared_rows_, kMostAddedShares);
  if (step.recorded) {
    shared_rows_.resize(step.rows);
    // As many as there can be of them: neighbours have one share in common.
    if (!merged.empty()) merged.resize((work.count - 1) / kMostAddedShares);
  }
  work.list = Write(fixed, shared_rows_);
  work.shares = Write(fixed, shares_);
  work.tables = step.d_tables;
  const auto parts = work.count + static_cast<int32_t>(shared_rows_.size());
  BATON_ASSIGN_OR_RETURN(work.partial, Partials(shape, parts));
  BATON_ASSIGN_OR_RETURN(work.merge, PlanMerge(shape, merged, parts, fixed));
  work.merge.many_parts = work.merge.rows > 0;
  BATON_ASSIGN_OR_RETURN(std::byte* const tickets,
                         tickets_.Get(shared_rows_.size() * ShareGroups(shape) * sizeof(uint32_t)));
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
  limits.slots = std::max(1, 2 * limits_.processors / shape.kv_heads);
  if (options_.deterministic) limits.fixed_part = decode ? kFixedPart : INT32_MAX / 2;
  limits.padded_rows = step.recorded ? step.rows : 0;
  limits.sequences = step.sequences;
  PagedPieces& pieces = paged_pieces_;
  CutPaged(decode ? few_ : many_, limits, pieces);
  PagedWork work;
  work.tile = tile;
  work.pieces = static_cast<int32_t>(pieces.sequence.size());
  work.row_count = step.rows;
  work.sequence = Write(fixed, pieces.sequence);
  work.query_tile = Write(fixed, pieces.query_tile);
  work.part = Write(fixed, pieces.part);
  if (!pieces.valid.empty()) {
    work.valid = reinterpret_cast<const bool*>(Write(fixed, pieces.valid));
  }
  work.out_starts = Write(fixed, pieces.out_starts);
  work.part_tokens = fixed.Write(std::span<const int32_t>(&pieces.part_tokens, 1));
  work.sequences = tables;
  BATON_ASSIGN_OR_RETURN(work.merge, PlanMerge(shape, pieces.merged, pieces.partials, fixed));
  return work;
}

StatusOr<RaggedWork> Attention::PlanRagged(const AttentionShape& shape,
                                           const StepLayout& step,
                                           const KvView& kv,
                                           StepBuffer& fixed) {
  RaggedWork work;
  const int32_t block_tokens = kv.block_tokens;
  const bool cached =
      GathersAll(kv) || std::any_of(many_.begin(), many_.end(), [](const AttendingSequence& s) {
        return s.length > s.rows;
      });
  std::vector<int32_t> key_starts;
  std::vector<GatheredSequence> gathered;
  for (const AttendingSequence& sequence : many_) {
    key_starts.push_back(cached ? work.gather.tokens : sequence.row);
    work.row_count = std::max(work.row_count, sequence.row + sequence.rows);
    if (!cached) continue;
    gathered.push_back({sequence.table_start, sequence.length, work.gather.tokens});
    const int32_t tokens = RoundUp(sequence.length, kGatherAlignment);
    work.gather.tokens += tokens;
    work.gather.max_blocks = std::max(work.gather.max_blocks, CeilDiv(tokens, block_tokens));
  }
  if (cached) {
    work.gather.sequences = static_cast<int32_t>(gathered.size());
    work.gather.list = Write(fixed, gathered);
    work.gather.tables = step.d_tables;
    BATON_ASSIGN_OR_RETURN(
        work.gather.to,
        gathered_.Get(size_t{4} * work.gather.tokens * shape.kv_heads * shape.head_dim));
  }
  RaggedPieces& pieces = ragged_pieces_;
  CutRagged(
      many_, key_starts, HopperTile(shape.head_dim), shape.q_heads, limits_.processors, pieces);
  work.pieces = static_cast<int32_t>(pieces.head.size());
  work.blocks = limits_.processors;
  work.starts = Write(fixed, pieces.starts);
  work.head = Write(fixed, pieces.head);
  work.query_tile = Write(fixed, pieces.query_tile);
  work.query_start = Write(fixed, pieces.query_start);
  work.query_rows = Write(fixed, pieces.query_rows);
  work.key_start = Write(fixed, pieces.key_start);
  work.keys = Write(fixed, pieces.keys);
  work.sequence = Write(fixed, pieces.sequence);
  return work;
}

StatusOr<PortableWork> Attention::PlanPortable(const AttentionShape& shape,
                                               const StepLayout& step,
                                               StepBuffer& fixed) {
  PortablePieces& pieces = portable_pieces_;
  CutPortable(few_, shape.window, step.recorded ? step.rows : 0, pieces);
  PortableWork work;
  work.pieces = static_cast<int32_t>(pieces.list.size());
  work.list = Write(fixed, pieces.list);
  work.tables = step.d_tables;
  BATON_ASSIGN_OR_RETURN(work.merge, PlanMerge(shape, pieces.merged, pieces.partials, fixed));
  return work;
}

StatusOr<MergeWork> Attention::PlanMerge(const AttentionShape& shape,
                                         const std::vector<MergedRow>& merged,
                                         int32_t partials,
                                         StepBuffer& fixed) {
  MergeWork work;
  if (merged.empty()) return work;
  work.rows = static_cast<int32_t>(merged.size());
  work.list = Write(fixed, merged);
  BATON_ASSIGN_OR_RETURN(work.partial, Partials(shape, partials));
  return work;
}

StatusOr<PartialResults> Attention::Partials(const AttentionShape& shape, int32_t count) {
  const size_t weights = static_cast<size_t>(count) * shape.q_heads;
  BATON_ASSIGN_OR_RETURN(std::byte* const memory,
                         partial_.Get(weights * (shape.head_dim + 1) * sizeof(float)));
  auto* const values = reinterpret_cast<float*>(memory);
  return PartialResults{values, values + weights * shape.head_dim};
}

cudaError_t Attention::Launch(const AttentionPlan& plan, AttentionCall call) {
  const AttentionShape& shape = plan.shape;
  if (call.qkv.dtype != DType::kBF16 || call.out.dtype != DType::kBF16 ||
      call.out.stride != int64_t{shape.q_heads} * shape.head_dim) {
    return cudaErrorInvalidValue;
  }
  call.shape = shape;
  call.overlapped = limits_.architecture >= 90;
  if (call.quantized.data != nullptr && !(OnlyShares(plan) && SharesQuantize(shape))) {
    const QuantizedRows quantized = std::exchange(call.quantized, {});
    const cudaError_t error = LaunchKernels(plan, call);
    return error != cudaSuccess ? error : LaunchQuantize(call.out, quantized, call.stream);
  }
  return LaunchKernels(plan, call);
}

cudaError_t Attention::LaunchKernels(const AttentionPlan& plan, const AttentionCall& call) {
  const AttentionShape& shape = plan.shape;
  cudaError_t error = cudaSuccess;
  const auto then = [&](auto&& launch, const auto& work) {
    if (error == cudaSuccess) error = launch(work, call);
  };
  if (plan.portable.pieces > 0) {
    then(LaunchPortableAttention, plan.portable);
    if (plan.portable.merge.rows > 0) then(LaunchMerge, plan.portable.merge);
    return error;
  }
  if (plan.ragged.pieces > 0) {
    if (plan.ragged.gather.sequences > 0) then(LaunchGather, plan.ragged.gather);
    if (shape.head_dim == 64) then(LaunchHopperAttention64, plan.ragged);
    if (shape.head_dim == 128) then(LaunchHopperAttention128, plan.ragged);
    if (shape.head_dim == 256) then(LaunchHopperAttention256, plan.ragged);
  }
  const bool quantized = call.kv.dtype == DType::kF8;
  if (plan.chunks.pieces > 0) {
    then(quantized ? LaunchQuantizedChunkAttention : LaunchChunkAttention, plan.chunks);
    if (plan.chunks.merge.rows > 0) then(LaunchMerge, plan.chunks.merge);
  }
  if (plan.cluster.rows > 0) then(LaunchClusterAttention, plan.cluster);
  if (plan.shares.count > 0) {
    then(LaunchShareAttention, plan.shares);
    if (plan.shares.merge.rows > 0) then(LaunchMerge, plan.shares.merge);
  }
  if (plan.rows.pieces > 0) {
    then(quantized ? LaunchQuantizedDecodeAttention : LaunchDecodeAttention, plan.rows);
    if (plan.rows.merge.rows > 0) then(LaunchMerge, plan.rows.merge);
  }
  return error;
}

}  // namespace baton::cuda
