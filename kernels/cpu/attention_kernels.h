#pragma once

#include "kernels/cpu/kernel_table.h"
#include "kernels/cpu/register_tile.h"
#include "kernels/cpu/vector_kernels.h"

namespace baton::cpu {

enum class KeyOrder : uint8_t {
  kDimMajor,    // [dim][token]
  kTokenMajor,  // [token][dim]
};

// Attention over the paged KV cache with the vectors of instruction set S. The operations of a
// query have a fixed order: scores of 16 positions at a time (fma over the dimensions, in order),
// or of one position with keys in kTokenMajor (fma of vectors of 16 dimensions, in order, and the
// 16 lanes added in a fixed tree); with a cap, their tanh; their maximum, with that of a sink;
// vectors of 16 exponentials, added in order of position, and the 16 lanes added in a fixed tree;
// the exponential of the sink; fma of the values in order of position; one division. Several
// queries may be computed together, but no sum contains terms of two queries.
template <class S, KeyOrder kOrder>
struct AttentionKernels {
  using F = typename S::F;
  using Vector = VectorKernels<S>;
  using Tile = RegisterTile<S::kTileVectors>;

  struct Query {
    const float* q;
    float* out;
    int32_t begin;      // first visible position
    int32_t end;        // one past the last visible position
    float* scores;      // [positions], beginning at `base`
    float* sum;         // [value_dim], the weighted sum of the values
    const float* sink;  // AttentionTask::sinks of its head, or null
  };

  template <FloatKind kKind>
  static F LoadLanes(const std::byte* p) {
    if constexpr (kKind == FloatKind::kF32) return S::Load(reinterpret_cast<const float*>(p));
    if constexpr (kKind == FloatKind::kF16)
      return S::LoadHalf(reinterpret_cast<const uint16_t*>(p));
    if constexpr (kKind == FloatKind::kBF16) {
      return S::LoadBf16(reinterpret_cast<const uint16_t*>(p));
    }
  }

  static void Run(const AttentionTask& task) {
    if (task.kind == FloatKind::kF32) return RunKind<FloatKind::kF32>(task);
    if (task.kind == FloatKind::kF16) return RunKind<FloatKind::kF16>(task);
    return RunKind<FloatKind::kBF16>(task);
  }

  template <FloatKind kKind>
  static void RunKind(const AttentionTask& task) {
    const int32_t total = task.rows * task.group;
    const typename Tile::Rows rows(total);
    for (int32_t t = 0, first = 0; t < rows.tiles; first += rows.Of(t++)) {
      Query queries[Tile::kMaxRows];
      Describe(task, first, rows.Of(t), queries);
      Tile::WithRows(rows.Of(t), [&](auto n) { Together<kKind, n.value>(task, queries); });
    }
  }

  static void Describe(const AttentionTask& task, int32_t first, int32_t n, Query* queries) {
    for (int32_t i = 0; i < n; ++i) {
      const int32_t row = (first + i) / task.group;
      const int32_t head = (first + i) % task.group;
      Query& query = queries[i];
      query.q = task.q + row * task.q_stride + head * task.head_dim;
      query.out = task.out + row * task.out_stride + head * task.value_dim;
      query.sink = task.sinks == nullptr ? nullptr : task.sinks + head;
      query.end = task.position + row + 1;
      query.begin = task.window > 0 && query.end > task.window ? query.end - task.window : 0;
      if (task.chunk > 0) query.begin = (query.end - 1) / task.chunk * task.chunk;
    }
    // Queries are in row order: the first query begins first, the last query ends last.
    const int64_t base = queries[0].begin / 16 * 16;
    const int64_t span = (queries[n - 1].end - base + 15) / 16 * 16;
    float* sums = task.scratch + n * span;
    const int64_t sum_size = (task.value_dim + 15) / 16 * 16;
    for (int32_t i = 0; i < n; ++i) {
      queries[i].scores = task.scratch + i * span;
      queries[i].sum = sums + i * sum_size;
    }
  }

  template <FloatKind kKind, int kN>
  static void Together(const AttentionTask& task, Query* queries) {
    const int32_t base = queries[0].begin / 16 * 16;
    const int32_t end = queries[kN - 1].end;
    if constexpr (kOrder == KeyOrder::kDimMajor) {
      Scores<kKind, kN>(task, queries, base, end);
    } else {
      ScoresOfRows<kKind, kN>(task, queries, base, end);
    }
    float total[kN];
    for (int i = 0; i < kN; ++i) total[i] = Softmax(queries[i], base, task);
    int32_t common_begin = queries[kN - 1].begin;
    const int32_t common_end = queries[0].end;
    if (common_begin > common_end) common_begin = common_end;
    for (int i = 0; i < kN; ++i) {
      for (int32_t d = 0; d < task.value_dim; d += 16) S::Store(queries[i].sum + d, S::Set(0.0f));
      Values<kKind, 1>(task, queries + i, base, queries[i].begin, common_begin);
    }
    Values<kKind, kN>(task, queries, base, common_begin, common_end);
    for (int i = 0; i < kN; ++i) {
      const int32_t from = queries[i].begin > common_end ? queries[i].begin : common_end;
      Values<kKind, 1>(task, queries + i, base, from, queries[i].end);
      Finish(queries[i], task.value_dim, total[i]);
    }
  }

  // Scores of positions [base, end) before the scale; `base` is a multiple of 16.
  template <FloatKind kKind, int kN>
  static void Scores(const AttentionTask& task, Query* queries, int32_t base, int32_t end) {
    constexpr int kChunks = Tile::Width(kN);
    int32_t position = base;
    for (; position + 16 * kChunks <= end; position += 16 * kChunks) {
      ScoreChunks<kKind, kN, kChunks>(task, queries, base, position, end);
    }
    for (; position < end; position += 16) {
      ScoreChunks<kKind, kN, 1>(task, queries, base, position, end);
    }
  }

  template <int64_t kBytes>
  static const std::byte* KeysFrom(const AttentionTask& task, int32_t position) {
    return task.k + task.blocks[position / task.block_tokens] * task.block_stride +
           position % task.block_tokens * kBytes;
  }

  template <int64_t kBytes>
  static const std::byte* ValuesFrom(const AttentionTask& task, int32_t position) {
    return task.v + task.blocks[position / task.block_tokens] * task.block_stride +
           int64_t{position % task.block_tokens} * task.value_stride * kBytes;
  }

  // Scores of 16 · kC positions from `position` on: kN · kC independent accumulators. Prefetches
  // the values of these positions, because a block is too short for the processor's own
  // prefetches, and the first keys after them, up to `end`.
  template <FloatKind kKind, int kN, int kC>
  static void ScoreChunks(
      const AttentionTask& task, Query* queries, int32_t base, int32_t position, int32_t end) {
    constexpr int64_t kBytes = kKind == FloatKind::kF32 ? 4 : 2;
    const int64_t row_bytes = task.block_tokens * kBytes;
    const int32_t next = position + 16 * kC;
    const std::byte* const next_keys = KeysFrom<kBytes>(task, next < end ? next : base);
    const std::byte* k[kC];
    const std::byte* v[kC];
    F acc[kN][kC];
    for (int c = 0; c < kC; ++c) {
      k[c] = KeysFrom<kBytes>(task, position + 16 * c);
      v[c] = ValuesFrom<kBytes>(task, position + 16 * c);
      for (int i = 0; i < kN; ++i) acc[i][c] = S::Set(0.0f);
    }
    for (int32_t d = 0; d < task.head_dim; ++d) {
      __builtin_prefetch(next_keys + d * row_bytes);
      for (int c = 0; c < kC; ++c) __builtin_prefetch(v[c] + d * 16 * kBytes);
      F keys[kC];
      for (int c = 0; c < kC; ++c) keys[c] = LoadLanes<kKind>(k[c] + d * row_bytes);
      for (int i = 0; i < kN; ++i) {
        const F q = S::Set(queries[i].q[d]);
        for (int c = 0; c < kC; ++c) acc[i][c] = S::Fma(q, keys[c], acc[i][c]);
      }
    }
    for (int i = 0; i < kN; ++i) {
      for (int c = 0; c < kC; ++c) {
        S::Store(queries[i].scores + (position - base) + 16 * c, acc[i][c]);
      }
    }
  }

  // The same with keys in kTokenMajor. A key past `end` is memory of the last block; its score is
  // not used.
  template <FloatKind kKind, int kN>
  static void ScoresOfRows(const AttentionTask& task, Query* queries, int32_t base, int32_t end) {
    constexpr int64_t kBytes = kKind == FloatKind::kF32 ? 4 : 2;
    // Divides 16, so that these keys are in one block.
    constexpr int kKeys = Tile::Width(kN) == 3 ? 2 : Tile::Width(kN);
    const int32_t whole = task.head_dim / 16 * 16;
    for (int32_t position = base; position < end; position += kKeys) {
      const std::byte* const keys = task.k +
                                    task.blocks[position / task.block_tokens] * task.block_stride +
                                    int64_t{position % task.block_tokens} * task.head_dim * kBytes;
      F acc[kN][kKeys];
      for (int i = 0; i < kN; ++i) {
        for (int c = 0; c < kKeys; ++c) acc[i][c] = S::Set(0.0f);
      }
      const auto add = [&](int32_t d, auto load_query, auto load_key) {
        F key[kKeys];
        for (int c = 0; c < kKeys; ++c) key[c] = load_key(keys + (c * task.head_dim + d) * kBytes);
        for (int i = 0; i < kN; ++i) {
          const F q = load_query(queries[i].q + d);
          for (int c = 0; c < kKeys; ++c) acc[i][c] = S::Fma(q, key[c], acc[i][c]);
        }
      };
      for (int32_t d = 0; d < whole; d += 16) {
        add(
            d,
            [](const float* p) { return S::Load(p); },
            [](const std::byte* p) { return LoadValues<kKind, 16>(p); });
      }
      if (whole < task.head_dim) {
        add(
            whole,
            [](const float* p) { return S::LoadPart(p, 8); },
            [](const std::byte* p) { return LoadValues<kKind, 8>(p); });
      }
      for (int i = 0; i < kN; ++i) {
        for (int c = 0; c < kKeys; ++c) {
          queries[i].scores[position - base + c] = S::Sum(acc[i][c]);
        }
      }
    }
  }

  // Replaces the scores by tanh(scale · score / cap), which the cap will scale:
  // tanh(x) = 1 − 2 / (1 + e^(2x)).
  static void CapScores(const Query& query, int32_t base, const AttentionTask& task) {
    const F factor = S::Set(2.0f * task.scale / task.cap);
    const F one = S::Set(1.0f);
    const F two = S::Set(2.0f);
    for (int32_t position = query.begin / 16 * 16; position < query.end; position += 16) {
      float* const scores = query.scores + (position - base);
      const F power = Vector::Exp(S::Mul(S::Load(scores), factor));
      S::Store(scores, S::Sub(one, S::Div(two, S::Add(one, power))));
    }
  }

  // Replaces the scores by exp(scale · score − maximum), and by 0 at positions that the query may
  // not attend to. Returns their sum, to which a sink adds exp(sink − maximum).
  static float Softmax(const Query& query, int32_t base, const AttentionTask& task) {
    if (task.cap > 0) CapScores(query, base, task);
    const F factor = S::Set(task.cap > 0 ? task.cap : task.scale);
    const F lowest = S::Set(-__builtin_inff());
    const int32_t first = query.begin / 16 * 16;
    F best = query.sink == nullptr ? lowest : S::Set(*query.sink);
    for (int32_t position = first; position < query.end; position += 16) {
      const F score = S::Mul(S::Load(query.scores + (position - base)), factor);
      best = S::Max(S::Select(query.begin - position, query.end - position, score, lowest), best);
    }
    const F maximum = S::Set(S::MaxLane(best));
    F sum = S::Set(0.0f);
    for (int32_t position = first; position < query.end; position += 16) {
      float* scores = query.scores + (position - base);
      const F e = Vector::Exp(S::Sub(S::Mul(S::Load(scores), factor), maximum));
      const F seen = S::Select(query.begin - position, query.end - position, e, S::Set(0.0f));
      S::Store(scores, seen);
      sum = S::Add(sum, seen);
    }
    if (query.sink == nullptr) return S::Sum(sum);
    const F sink = Vector::Exp(S::Sub(S::Set(*query.sink), maximum));
    return S::Sum(sum) + S::MaxLane(sink);
  }

  // sum += Σ score · value over positions [from, to).
  template <FloatKind kKind, int kN>
  static void Values(
      const AttentionTask& task, Query* queries, int32_t base, int32_t from, int32_t to) {
    if (from >= to) return;
    constexpr int kVectors = Tile::Width(kN);
    const int32_t whole = task.value_dim / 16 * 16;
    int32_t d = 0;
    for (; d + 16 * kVectors <= whole; d += 16 * kVectors) {
      ValueColumns<kKind, kN, kVectors, 16>(task, queries, base, from, to, d);
    }
    for (; d < whole; d += 16) ValueColumns<kKind, kN, 1, 16>(task, queries, base, from, to, d);
    if (d < task.value_dim) ValueColumns<kKind, kN, 1, 8>(task, queries, base, from, to, d);
  }

  template <FloatKind kKind, int kN, int kV, int kLanes>
  static void ValueColumns(const AttentionTask& task,
                           Query* queries,
                           int32_t base,
                           int32_t from,
                           int32_t to,
                           int32_t d) {
    constexpr int64_t kBytes = kKind == FloatKind::kF32 ? 4 : 2;
    F acc[kN][kV];
    for (int i = 0; i < kN; ++i) {
      for (int j = 0; j < kV; ++j) acc[i][j] = S::Load(queries[i].sum + d + 16 * j);
    }
    for (int32_t position = from; position < to;) {
      const int32_t offset = position % task.block_tokens;
      const int32_t left = task.block_tokens - offset;
      const int32_t stop = to - position < left ? to : position + left;
      const std::byte* v = ValuesFrom<kBytes>(task, position) + d * kBytes;
      for (; position < stop; ++position, v += task.value_stride * kBytes) {
        F values[kV];
        for (int j = 0; j < kV; ++j) values[j] = LoadValues<kKind, kLanes>(v + 16 * j * kBytes);
        for (int i = 0; i < kN; ++i) {
          const F weight = S::Set(queries[i].scores[position - base]);
          for (int j = 0; j < kV; ++j) acc[i][j] = S::Fma(weight, values[j], acc[i][j]);
        }
      }
    }
    for (int i = 0; i < kN; ++i) {
      for (int j = 0; j < kV; ++j) S::Store(queries[i].sum + d + 16 * j, acc[i][j]);
    }
  }

  // kLanes is 16, or 8 for the last lanes of a head: nothing after them is read.
  template <FloatKind kKind, int kLanes>
  static F LoadValues(const std::byte* p) {
    if constexpr (kLanes == 16) return LoadLanes<kKind>(p);
    if constexpr (kKind == FloatKind::kF32) {
      return S::LoadPart(reinterpret_cast<const float*>(p), kLanes);
    }
    alignas(64) uint16_t narrow[16] = {};
    __builtin_memcpy(narrow, p, kLanes * sizeof(uint16_t));
    return LoadLanes<kKind>(reinterpret_cast<const std::byte*>(narrow));
  }

  static void Finish(const Query& query, int32_t value_dim, float total) {
    const F divisor = S::Set(total);
    for (int32_t d = 0; d < value_dim; d += 16) {
      const F value = S::Div(S::Load(query.sum + d), divisor);
      const int n = value_dim - d < 16 ? value_dim - d : 16;
      S::StorePart(query.out + d, value, n);
    }
  }
};

}  // namespace baton::cpu
