#include "kernels/cpu/latent_attention.h"

#include <algorithm>
#include <utility>

#include "common/base/check.h"
#include "kernels/cpu/attention_ranges.h"
#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/for_rows.h"

namespace baton::cpu {
namespace {

// Most heads of a row in one attention task: with few rows, the heads occupy the threads.
constexpr int32_t kHeadsPerTask = 8;

void CheckShape(const Tensor& x, int64_t cols, const char* what) {
  BATON_CHECK(x.cols == cols, "{} of [{}][{}]; {} columns expected", what, x.rows, x.cols, cols);
}

void CheckHeads(HeadMatrices weights, const LatentShape& shape) {
  BATON_CHECK(std::cmp_equal(weights.size(), shape.heads),
              "the weights of {} heads; there are {}",
              weights.size(),
              shape.heads);
}

}  // namespace

RopeTables::View CpuLatentOps::AnglesOf(const LatentRope& rope, int32_t rope_dim) const {
  if (rope.inverse_frequencies == nullptr) return {};
  const auto& frequencies = static_cast<const HostVector&>(*rope.inverse_frequencies);
  BATON_CHECK(frequencies.size() * 2 == rope_dim,
              "{} rope frequencies for {} rotated numbers",
              frequencies.size(),
              rope_dim);
  return context_.rope.Get(frequencies,
                           {frequencies.data(), static_cast<size_t>(frequencies.size())},
                           rope.magnitude,
                           context_.input.positions);
}

void CpuLatentOps::Rotate(const RopeTables::View& angles,
                          const LatentRope& rope,
                          int64_t row,
                          float* head) const {
  if (angles.half == 0) return;
  RotateArgs args;
  args.x = head;
  args.cos = angles.cos + row * angles.half;
  args.sin = angles.sin + row * angles.half;
  args.rotary_dim = static_cast<int32_t>(2 * angles.half);
  args.adjacent = rope.pairing == RopePairing::kAdjacent;
  context_.kernels.rotate(args);
}

void CpuLatentOps::CheckKv(const LatentShape& shape, int32_t layer) const {
  const KvView& kv = context_.kv;
  BATON_CHECK(kv.one_plane() && kv.kv_heads == 1 && kv.head_dim == shape.width(),
              "latents of {} numbers; the cache has {} heads of {}",
              shape.width(),
              kv.kv_heads,
              kv.head_dim);
  BATON_CHECK(layer >= 0 && layer < kv.layers, "layer {} of {}", layer, kv.layers);
}

const SequenceRows& CpuLatentOps::SequenceOf(int64_t row) const {
  const auto index = static_cast<size_t>(context_.row_sequence[static_cast<size_t>(row)]);
  return context_.input.sequences[index];
}

int32_t CpuLatentOps::PositionOf(int64_t row) const {
  const SequenceRows& sequence = SequenceOf(row);
  return static_cast<int32_t>(sequence.context + row - sequence.first_row);
}

CpuLatentOps::Slot CpuLatentOps::SlotOf(int64_t row, int32_t layer) const {
  const KvView& cache = context_.kv;
  const int64_t token = PositionOf(row);
  const int64_t entry =
      SequenceOf(row).TableOf(cache.PlaceOf(layer).group) + token / cache.block_tokens;
  return {.block = context_.input.block_tables[static_cast<size_t>(entry)],
          .token = token % cache.block_tokens};
}

void CpuLatentOps::MultiplyHeads(const HeadColumns& x,
                                 HeadMatrices weights,
                                 const HeadColumns& out) const {
  const int64_t rows = x.tensor.rows;
  const int64_t tiles = (rows + kTileRows - 1) / kTileRows;
  const auto heads = static_cast<int64_t>(weights.size());
  // A product of one head is small, so that heads and tiles are the items of work.
  context_.pool.Run(heads * tiles, [&](int64_t item, int) {
    const int64_t head = item / tiles;
    const int64_t first = item % tiles * kTileRows;
    const auto& matrix = static_cast<const PackedMatrix&>(*weights[static_cast<size_t>(head)]);
    BATON_CHECK(!matrix.quantised() && matrix.parts().size() == 1 && matrix.cols() == x.size &&
                    matrix.rows() == out.size,
                "weights of a head of [{}][{}]; [{}][{}] expected",
                matrix.rows(),
                matrix.cols(),
                out.size,
                x.size);
    const PackedPart& part = matrix.parts().front();
    TileView tile;
    tile.rows = static_cast<int32_t>(std::min<int64_t>(kTileRows, rows - first));
    tile.x = FloatRow(x.tensor, first) + head * x.stride;
    tile.x_stride = x.tensor.stride;
    float* const to = FloatRow(out.tensor, first) + head * out.stride;
    alignas(64) float acc[kGroup * kTileRows * kPanel];
    for (int64_t panel = 0; panel < part.panels;) {
      const auto count = static_cast<int32_t>(std::min<int64_t>(kGroup, part.panels - panel));
      context_.kernels.panels[static_cast<size_t>(part.view.kind)](
          part.view, tile, panel, count, acc);
      for (int32_t p = 0; p < count; ++p, ++panel) {
        const int64_t col = panel * kPanel;
        context_.kernels.store(acc + int64_t{p} * tile.rows * kPanel,
                               tile.rows,
                               nullptr,
                               to + col,
                               out.tensor.stride,
                               static_cast<int>(std::min<int64_t>(kPanel, out.size - col)));
      }
    }
  });
}

void CpuLatentOps::WriteLatent(const Tensor& kv, const LatentKvArgs& args) {
  const LatentShape& shape = args.shape;
  CheckShape(kv, shape.width(), "latents");
  CheckKv(shape, args.layer);
  const KvView& cache = context_.kv;
  const auto token_bytes = static_cast<int64_t>(ShapeOf(cache.dtype).bytes) * shape.width();
  const RopeTables::View angles = AnglesOf(args.rope, shape.rope_dim);
  ForRows(context_.pool, kv.rows, shape.width(), [&](int64_t row) {
    float* const x = FloatRow(kv, row);
    RmsNormArgs norm;
    norm.x = norm.out = x;
    norm.weight = static_cast<const HostVector*>(args.norm)->data();
    norm.epsilon = args.norm_epsilon;
    norm.size = shape.rank;
    context_.kernels.rms_norm(norm);
    Rotate(angles, args.rope, row, x + shape.rank);
    const Slot slot = SlotOf(row, args.layer);
    std::byte* const to = cache.Key(slot.block, args.layer, 0) + slot.token * token_bytes;
    context_.kernels.write_kv(x, shape.width(), KindOf(cache.dtype), 1, to);
  });
}

void CpuLatentOps::AbsorbQueries(const Tensor& q, const LatentQueryArgs& args, const Tensor& out) {
  const LatentShape& shape = args.shape;
  CheckShape(q, int64_t{shape.heads} * shape.query_dim(), "queries");
  CheckShape(out, int64_t{shape.heads} * shape.width(), "absorbed queries");
  CheckHeads(args.keys, shape);
  if (context_.exchange.failed()) return;
  MultiplyHeads(
      {q, shape.query_dim(), shape.nope_dim}, args.keys, {out, shape.width(), shape.rank});
  const RopeTables::View angles = AnglesOf(args.rope, shape.rope_dim);
  ForRows(context_.pool, q.rows, int64_t{shape.heads} * shape.rope_dim, [&](int64_t row) {
    for (int32_t head = 0; head < shape.heads; ++head) {
      const float* const from =
          FloatRow(q, row) + int64_t{head} * shape.query_dim() + shape.nope_dim;
      float* const to = FloatRow(out, row) + int64_t{head} * shape.width() + shape.rank;
      std::copy_n(from, shape.rope_dim, to);
      Rotate(angles, args.rope, row, to);
    }
  });
}

std::vector<CpuLatentOps::Part> CpuLatentOps::PartsOf(const LatentAttentionArgs& args) const {
  std::vector<RowRange> ranges = CutRows(context_.input, args.only_logit_rows);
  std::ranges::reverse(ranges);  // the last rows of a prompt take longest
  std::vector<Part> parts;
  for (const RowRange& range : ranges) {
    for (int32_t head = 0; head < args.shape.heads; head += kHeadsPerTask) {
      parts.push_back({range, head, std::min(kHeadsPerTask, args.shape.heads - head)});
    }
  }
  return parts;
}

AttentionTask CpuLatentOps::TaskOf(const Tensor& q,
                                   const LatentAttentionArgs& args,
                                   const Tensor& out,
                                   const Part& part) const {
  const LatentShape& shape = args.shape;
  const KvView& kv = context_.kv;
  const SequenceRows& sequence = *part.range.sequence;
  const int64_t row = sequence.first_row + part.range.first;
  AttentionTask task;
  task.q = FloatRow(q, row) + int64_t{part.first_head} * shape.width();
  task.q_stride = q.stride;
  task.out = FloatRow(out, row) + int64_t{part.first_head} * shape.rank;
  task.out_stride = out.stride;
  task.rows = part.range.rows;
  task.group = part.heads;
  task.head_dim = task.value_stride = shape.width();
  task.value_dim = shape.rank;
  task.position = sequence.context + part.range.first;
  task.scale = args.scale;
  task.blocks = context_.input.block_tables.data() + sequence.TableOf(kv.PlaceOf(args.layer).group);
  task.k = task.v = kv.Key(0, args.layer, 0);
  task.block_stride = kv.block_stride;
  task.block_tokens = kv.block_tokens;
  task.kind = KindOf(kv.dtype);
  return task;
}

void CpuLatentOps::AttendLatents(const Tensor& q,
                                 const LatentAttentionArgs& args,
                                 const Tensor& out) {
  const LatentShape& shape = args.shape;
  CheckShape(q, int64_t{shape.heads} * shape.width(), "absorbed queries");
  CheckShape(out, int64_t{shape.heads} * shape.rank, "attention");
  CheckKv(shape, args.layer);
  if (context_.exchange.failed()) return;
  const auto scratch = static_cast<size_t>(AttentionScratch(context_.longest, shape.rank));
  const std::vector<Part> parts = PartsOf(args);
  context_.pool.Run(static_cast<int64_t>(parts.size()), [&](int64_t item, int thread) {
    AttentionTask task = TaskOf(q, args, out, parts[static_cast<size_t>(item)]);
    task.scratch = AlignedScratch(context_.scratch[static_cast<size_t>(thread)], scratch);
    context_.kernels.token_major_attention(task);
  });
}

void CpuLatentOps::ExpandValues(const Tensor& x, const LatentValueArgs& args, const Tensor& out) {
  const LatentShape& shape = args.shape;
  CheckShape(x, int64_t{shape.heads} * shape.rank, "means of latents");
  CheckShape(out, int64_t{shape.heads} * shape.value_dim, "attention");
  CheckHeads(args.values, shape);
  if (context_.exchange.failed()) return;
  MultiplyHeads({x, shape.rank, shape.rank}, args.values, {out, shape.value_dim, shape.value_dim});
}

}  // namespace baton::cpu
