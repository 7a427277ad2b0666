#include <cmath>
#include <cstdint>

#include "common/base/check.h"
#include "kernels/cpu/attention_ranges.h"
#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/for_rows.h"

namespace baton::cpu {
namespace {

float FactorOf(const QueryScaling& scaling, int32_t position) {
  const int64_t steps = (int64_t{position} + 1) / scaling.step;
  return static_cast<float>(1.0 +
                            double{scaling.slope} * std::log(1.0 + static_cast<double>(steps)));
}

}  // namespace

void CpuOps::CheckHeads(const HeadShape& heads, const Tensor& qkv) const {
  BATON_CHECK(heads.kv_heads > 0 && heads.q_heads % heads.kv_heads == 0 &&
                  heads.kv_heads == kv_.kv_heads && heads.head_dim == kv_.head_dim,
              "{} q heads, {} kv heads of {}; the cache has {} of {}",
              heads.q_heads,
              heads.kv_heads,
              heads.head_dim,
              kv_.kv_heads,
              kv_.head_dim);
  BATON_CHECK(qkv.cols >= int64_t{heads.q_heads + 2 * heads.kv_heads} * heads.head_dim &&
                  qkv.rows == static_cast<int64_t>(input_.tokens.size()),
              "qkv of [{}][{}]",
              qkv.rows,
              qkv.cols);
}

void CpuOps::RotateRow(float* row,
                       const HeadShape& heads,
                       const RopeArgs& args,
                       int64_t index,
                       const RopeTables::View& angles) const {
  RotateArgs rotate;
  rotate.cos = angles.cos + index * angles.half;
  rotate.sin = angles.sin + index * angles.half;
  rotate.rotary_dim = static_cast<int32_t>(2 * angles.half);
  rotate.adjacent = args.pairing == RopePairing::kAdjacent;
  for (int32_t head = 0; head < heads.q_heads + heads.kv_heads; ++head) {
    float* x = row + int64_t{head} * heads.head_dim;
    const auto normalise = [&] {
      const Vector* norm = head < heads.q_heads ? args.q_norm : args.k_norm;
      if (norm == nullptr) return;
      RmsNormArgs norm_args;
      norm_args.x = norm_args.out = x;
      norm_args.weight = static_cast<const HostVector*>(norm)->data();
      norm_args.epsilon = args.norm_epsilon;
      norm_args.size = heads.head_dim;
      kernels_.rms_norm(norm_args);
    };
    if (!args.norm_after_rope) normalise();
    if (angles.half > 0) {
      rotate.x = x;
      kernels_.rotate(rotate);
    }
    if (args.norm_after_rope) normalise();
  }
  if (args.query_scaling.slope == 0) return;
  const float factor = FactorOf(args.query_scaling, input_.positions[static_cast<size_t>(index)]);
  const int64_t q_cols = int64_t{heads.q_heads} * heads.head_dim;
  for (int64_t i = 0; i < q_cols; ++i) row[i] *= factor;
}

void CpuOps::WriteKvRow(const float* row,
                        const HeadShape& heads,
                        int32_t layer,
                        int64_t index) const {
  const SequenceRows& sequence =
      input_.sequences[static_cast<size_t>(row_sequence_[static_cast<size_t>(index)])];
  const int64_t token = sequence.context + index - sequence.first_row;
  const int32_t table = sequence.TableOf(kv_.PlaceOf(layer).group);
  const int32_t block = input_.block_tables[static_cast<size_t>(table + token / kv_.block_tokens)];
  const int64_t slot = token % kv_.block_tokens;
  const auto width = static_cast<int64_t>(ShapeOf(kv_.dtype).bytes);
  const FloatKind kind = KindOf(kv_.dtype);
  const float* k = row + int64_t{heads.q_heads} * heads.head_dim;
  const float* v = k + int64_t{heads.kv_heads} * heads.head_dim;
  for (int32_t head = 0; head < heads.kv_heads; ++head) {
    std::byte* to_k = kv_.Key(block, layer, head) + slot * width;
    std::byte* to_v = kv_.Value(block, layer, head) + slot * heads.head_dim * width;
    kernels_.write_kv(
        k + int64_t{head} * heads.head_dim, heads.head_dim, kind, kv_.block_tokens, to_k);
    kernels_.write_kv(v + int64_t{head} * heads.head_dim, heads.head_dim, kind, 1, to_v);
  }
}

void CpuOps::RopeAndWriteKv(const Tensor& qkv,
                            const HeadShape& heads,
                            const RopeArgs& args,
                            int32_t layer) {
  CheckHeads(heads, qkv);
  BATON_CHECK(layer >= 0 && layer < kv_.layers, "layer {} of {}", layer, kv_.layers);
  RopeTables::View angles;
  if (args.inverse_frequencies != nullptr) {
    const auto& frequencies = static_cast<const HostVector&>(*args.inverse_frequencies);
    BATON_CHECK(frequencies.size() * 2 <= heads.head_dim,
                "{} rope frequencies for heads of {}",
                frequencies.size(),
                heads.head_dim);
    angles = rope_.Get(frequencies,
                       {frequencies.data(), static_cast<size_t>(frequencies.size())},
                       args.magnitude,
                       input_.positions);
  }
  const int64_t work = int64_t{heads.q_heads + 2 * heads.kv_heads} * heads.head_dim;
  ForRows(pool_, qkv.rows, work, [&](int64_t row) {
    RotateRow(FloatRow(qkv, row), heads, args, row, angles);
    WriteKvRow(FloatRow(qkv, row), heads, layer, row);
  });
}

void CpuOps::Attention(const Tensor& qkv, const AttentionArgs& args, const Tensor& out) {
  const HeadShape& heads = args.heads;
  CheckHeads(heads, qkv);
  BATON_CHECK(out.rows == qkv.rows && out.cols == int64_t{heads.q_heads} * heads.head_dim,
              "attention into [{}][{}]",
              out.rows,
              out.cols);
  if (exchange_.failed()) return;
  const std::vector<RowRange> ranges = CutRows(input_, args.only_logit_rows);
  const auto scratch_size = static_cast<size_t>(AttentionScratch(longest_, heads.head_dim));
  const int32_t group = heads.q_heads / heads.kv_heads;
  const KvLayerPlace place = kv_.PlaceOf(args.layer);
  BATON_CHECK(args.sinks == nullptr || args.sinks->size() == heads.q_heads,
              "{} sinks of {} heads",
              args.sinks == nullptr ? 0 : args.sinks->size(),
              heads.q_heads);
  const float* const sinks =
      args.sinks == nullptr ? nullptr : static_cast<const HostVector*>(args.sinks)->data();
  const auto items = static_cast<int64_t>(ranges.size()) * heads.kv_heads;
  pool_.Run(items, [&](int64_t item, int thread) {
    // The last rows of a prompt take longest, so they are computed first.
    const RowRange& range = ranges[ranges.size() - 1 - static_cast<size_t>(item / heads.kv_heads)];
    const auto head = static_cast<int32_t>(item % heads.kv_heads);
    const SequenceRows& sequence = *range.sequence;
    const int64_t row = sequence.first_row + range.first;
    const int64_t column = int64_t{head} * group * heads.head_dim;
    AttentionTask task;
    task.q = FloatRow(qkv, row) + column;
    task.q_stride = qkv.stride;
    task.out = FloatRow(out, row) + column;
    task.out_stride = out.stride;
    task.rows = range.rows;
    task.group = group;
    task.head_dim = task.value_dim = task.value_stride = heads.head_dim;
    task.position = sequence.context + range.first;
    task.window = args.window;
    task.chunk = args.chunk;
    task.scale = args.scale;
    task.cap = args.cap;
    task.sinks = sinks == nullptr ? nullptr : sinks + int64_t{head} * group;
    task.blocks = input_.block_tables.data() + sequence.TableOf(place.group);
    task.k = kv_.Key(0, args.layer, head);
    task.v = kv_.Value(0, args.layer, head);
    task.block_stride = kv_.block_stride;
    task.block_tokens = kv_.block_tokens;
    task.kind = KindOf(kv_.dtype);
    task.scratch = AlignedScratch(attention_scratch_[static_cast<size_t>(thread)], scratch_size);
    kernels_.attention(task);
  });
}

}  // namespace baton::cpu
