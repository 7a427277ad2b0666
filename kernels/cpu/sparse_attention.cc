#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <span>
#include <vector>

#include "common/base/check.h"
#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/for_rows.h"
#include "kernels/cpu/latent_attention.h"

// The ops of LatentOps for models whose rows attend to selected tokens.
namespace baton::cpu {
namespace {

constexpr int32_t kLanes = 16;
constexpr int32_t kRankedTogether = 16;  // rows; bounds the memory of their scores
constexpr int32_t kTokensPerTask = 1024;

int32_t RoundUp(int32_t value, int32_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

// Writes the positions of the `chosen.size()` highest scores, ascending.
void Choose(std::span<float> scores, std::span<float> chosen) {
  for (float& score : scores) {
    if (std::isnan(score)) score = -std::numeric_limits<float>::infinity();
  }
  std::vector<int32_t> order(scores.size());
  std::iota(order.begin(), order.end(), 0);
  const auto end = order.begin() + static_cast<ptrdiff_t>(chosen.size());
  std::nth_element(order.begin(), end, order.end(), [&](int32_t a, int32_t b) {
    const float x = scores[static_cast<size_t>(a)];
    const float y = scores[static_cast<size_t>(b)];
    return x != y ? x > y : a < b;
  });
  std::sort(order.begin(), end);
  std::transform(order.begin(), end, chosen.begin(), [](int32_t position) {
    return static_cast<float>(position);
  });
}

}  // namespace

void CpuLatentOps::CheckIndex(const IndexShape& shape, int32_t layer) const {
  const KvView& kv = context_.kv;
  BATON_CHECK(kv.index_dim == shape.dim && shape.heads > 0 && shape.tokens > 0,
              "index keys of {} numbers; the cache has some of {}",
              shape.dim,
              kv.index_dim);
  BATON_CHECK(layer >= 0 && layer < kv.layers, "layer {} of {}", layer, kv.layers);
}

void CpuLatentOps::WriteIndexKeys(const Tensor& k, const IndexKeyArgs& args) {
  const IndexShape& shape = args.shape;
  BATON_CHECK(k.cols == shape.dim, "index keys of [{}][{}]", k.rows, k.cols);
  CheckIndex(shape, args.layer);
  const KvView& cache = context_.kv;
  const auto token_bytes = static_cast<int64_t>(ShapeOf(cache.dtype).bytes) * shape.dim;
  const RopeTables::View angles = AnglesOf(args.rope, shape.rope_dim);
  ForRows(context_.pool, k.rows, shape.dim, [&](int64_t row) {
    float* const x = FloatRow(k, row);
    Rotate(angles, args.rope, row, x);
    const Slot slot = SlotOf(row, args.layer);
    std::byte* const to = cache.IndexKey(slot.block, args.layer) + slot.token * token_bytes;
    context_.kernels.write_kv(x, shape.dim, KindOf(cache.dtype), 1, to);
  });
}

void CpuLatentOps::RankTokens(std::span<const int64_t> rows,
                              const Tensor& q,
                              const Tensor& weights,
                              const SelectArgs& args,
                              const Tensor& out) {
  const IndexShape& shape = args.shape;
  const KvView& kv = context_.kv;
  const int32_t heads = RoundUp(shape.heads, kLanes);
  const auto longest = static_cast<size_t>(context_.longest);
  const auto columns = static_cast<size_t>(heads);
  const auto dim = static_cast<size_t>(shape.dim);
  // Of each row: [dim][heads] queries, [heads] weights, and scores.
  const size_t row_size = (dim + 1) * columns + longest;
  index_memory_.assign(rows.size() * row_size, 0.0f);
  const auto memory_of = [&](size_t i) { return index_memory_.data() + i * row_size; };
  const RopeTables::View angles = AnglesOf(args.rope, shape.rope_dim);
  const auto count = static_cast<int64_t>(rows.size());
  ForRows(context_.pool, count, int64_t{shape.heads} * shape.dim, [&](int64_t i) {
    const int64_t row = rows[static_cast<size_t>(i)];
    float* const memory = memory_of(static_cast<size_t>(i));
    std::vector<float> head(dim);
    for (size_t h = 0; h < static_cast<size_t>(shape.heads); ++h) {
      std::copy_n(FloatRow(q, row) + h * dim, dim, head.begin());
      Rotate(angles, args.rope, row, head.data());
      for (size_t d = 0; d < dim; ++d) memory[d * columns + h] = head[d];
    }
    std::copy_n(FloatRow(weights, row), shape.heads, memory + dim * columns);
  });

  const auto parts = static_cast<int64_t>((longest + kTokensPerTask - 1) / kTokensPerTask);
  context_.pool.Run(count * parts, [&](int64_t item, int thread) {
    const int64_t row = rows[static_cast<size_t>(item / parts)];
    const SequenceRows& sequence = SequenceOf(row);
    float* const memory = memory_of(static_cast<size_t>(item / parts));
    IndexTask task;
    task.begin = static_cast<int32_t>(item % parts) * kTokensPerTask;
    task.end = std::min(task.begin + kTokensPerTask, PositionOf(row) + 1);
    if (task.begin >= task.end) return;
    task.q = memory;
    task.weights = memory + dim * columns;
    task.scores = memory + (dim + 1) * columns;
    task.heads = heads;
    task.dim = shape.dim;
    task.blocks =
        context_.input.block_tables.data() + sequence.TableOf(kv.PlaceOf(args.layer).group);
    task.keys = kv.IndexKey(0, args.layer);
    task.block_stride = kv.block_stride;
    task.block_tokens = kv.block_tokens;
    task.kind = KindOf(kv.dtype);
    task.scratch = AlignedScratch(context_.scratch[static_cast<size_t>(thread)], 4 * dim);
    context_.kernels.index_scores(task);
  });
  context_.pool.Run(count, [&](int64_t i, int) {
    const int64_t row = rows[static_cast<size_t>(i)];
    float* const scores = memory_of(static_cast<size_t>(i)) + (dim + 1) * columns;
    Choose({scores, static_cast<size_t>(PositionOf(row)) + 1},
           {FloatRow(out, row), static_cast<size_t>(shape.tokens)});
  });
}

void CpuLatentOps::SelectTokens(const Tensor& q,
                                const Tensor& weights,
                                const SelectArgs& args,
                                const Tensor& out) {
  const IndexShape& shape = args.shape;
  BATON_CHECK(q.cols == int64_t{shape.heads} * shape.dim && weights.cols == shape.heads &&
                  out.cols == shape.tokens,
              "{} numbers of index queries, {} weights and {} selected tokens",
              q.cols,
              weights.cols,
              out.cols);
  CheckIndex(shape, args.layer);
  if (context_.exchange.failed()) return;
  std::vector<int64_t> ranked;
  for (int64_t row = 0; row < q.rows; ++row) {
    const auto number = static_cast<int32_t>(row);
    if (args.only_logit_rows && FirstLogitRow(context_.input, number, 1) != number) continue;
    const int32_t seen = PositionOf(row) + 1;
    if (seen > shape.tokens) {
      ranked.push_back(row);
      continue;
    }
    float* const selected = FloatRow(out, row);
    std::iota(selected, selected + seen, 0.0f);
    std::fill(selected + seen, selected + shape.tokens, -1.0f);
  }
  for (size_t first = 0; first < ranked.size(); first += kRankedTogether) {
    const size_t count = std::min<size_t>(kRankedTogether, ranked.size() - first);
    RankTokens(std::span(ranked).subspan(first, count), q, weights, args, out);
  }
}

// Copies the latents of the positions one behind the other. The order of the sums of attention is
// that of positions.
void CpuLatentOps::GatherSelected(std::span<const float> selected,
                                  int thread,
                                  AttentionTask& task) {
  const KvView& kv = context_.kv;
  const size_t token_bytes = ShapeOf(kv.dtype).bytes * static_cast<size_t>(task.head_dim);
  std::vector<std::byte>& gathered = gathered_[static_cast<size_t>(thread)];
  gathered.resize(gathered_blocks_.size() * static_cast<size_t>(kv.block_tokens) * token_bytes);
  std::byte* to = gathered.data();
  for (const float number : selected) {
    const auto position = static_cast<int32_t>(number);
    const std::byte* const from = task.k +
                                  task.blocks[position / kv.block_tokens] * kv.block_stride +
                                  static_cast<size_t>(position % kv.block_tokens) * token_bytes;
    std::memcpy(to, from, token_bytes);
    to += token_bytes;
  }
  task.k = task.v = gathered.data();
  task.blocks = gathered_blocks_.data();
  task.block_stride = kv.block_tokens * static_cast<int64_t>(token_bytes);
  task.position = static_cast<int32_t>(selected.size()) - 1;
}

void CpuLatentOps::AttendSelected(const Tensor& q,
                                  const Tensor& selected,
                                  const LatentAttentionArgs& args,
                                  const Tensor& out) {
  const LatentShape& shape = args.shape;
  BATON_CHECK(q.cols == int64_t{shape.heads} * shape.width() &&
                  out.cols == int64_t{shape.heads} * shape.rank,
              "absorbed queries of {} numbers, attention of {}",
              q.cols,
              out.cols);
  CheckKv(shape, args.layer);
  if (context_.exchange.failed()) return;
  const auto most = static_cast<int32_t>(selected.cols);
  const int32_t blocks = RoundUp(most, context_.kv.block_tokens) / context_.kv.block_tokens;
  gathered_.resize(static_cast<size_t>(context_.pool.threads()));
  gathered_blocks_.resize(static_cast<size_t>(blocks));
  std::iota(gathered_blocks_.begin(), gathered_blocks_.end(), 0);
  const auto scratch = static_cast<size_t>(AttentionScratch(most, shape.rank));
  const std::vector<Part> parts = PartsOf(args);
  context_.pool.Run(static_cast<int64_t>(parts.size()), [&](int64_t item, int thread) {
    Part part = parts[static_cast<size_t>(item)];
    const RowRange range = part.range;
    const auto run = [&](AttentionTask task) {
      task.scratch = AlignedScratch(context_.scratch[static_cast<size_t>(thread)], scratch);
      context_.kernels.token_major_attention(task);
    };
    // The first rows attend to all tokens.
    part.range.rows = std::clamp(most - range.sequence->context - range.first, 0, range.rows);
    if (part.range.rows > 0) run(TaskOf(q, args, out, part));
    for (int32_t i = part.range.rows; i < range.rows; ++i) {
      const int32_t row = range.sequence->first_row + range.first + i;
      if (args.only_logit_rows && FirstLogitRow(context_.input, row, 1) != row) continue;
      AttentionTask task =
          TaskOf(q, args, out, {{range.sequence, range.first + i, 1}, part.first_head, part.heads});
      GatherSelected({FloatRow(selected, row), static_cast<size_t>(most)}, thread, task);
      run(task);
    }
  });
}

}  // namespace baton::cpu
