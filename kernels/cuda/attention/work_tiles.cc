#include "kernels/cuda/attention/work_tiles.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <queue>

#include "kernels/cuda/primitives/rounding.h"

namespace baton::cuda {
namespace {

// Positions of K that the paged kernel loads at a time. Splits are multiples of it.
constexpr int32_t kStride = 128;
// Splitting a shorter context does not pay for the combine kernel.
constexpr int32_t kMaxWholeContext = 256;
// Fewest units that are worth a thread block.
constexpr int32_t kMinUnits = 4;
// In deterministic mode, a row has kFixedSplits splits, unless these have less or more units than
// this.
constexpr int32_t kFixedSplits = 8;
constexpr int32_t kMinSplitUnits = 8;
constexpr int32_t kMaxSplitUnits = 32;

int32_t QueryTiles(const AttentionSequence& sequence, const PagedLimits& limits) {
  return CeilDiv(int64_t{sequence.rows} * limits.group, limits.tile);
}

// Positions that a tile may see. Must match FlashInfer's formula, because the kernel derives the
// index of its partial result from it.
int32_t VisibleToTile(const AttentionSequence& sequence, const PagedLimits& limits) {
  if (limits.window == 0) return sequence.length;
  return std::min(sequence.length, limits.window - 1 + limits.tile);
}

int32_t CountTiles(std::span<const AttentionSequence> sequences,
                   const PagedLimits& limits,
                   int32_t split_tokens) {
  int64_t work_tiles = 0;
  for (const AttentionSequence& sequence : sequences) {
    work_tiles += int64_t{QueryTiles(sequence, limits)} *
                  CeilDiv(VisibleToTile(sequence, limits), split_tokens);
  }
  return static_cast<int32_t>(std::min<int64_t>(work_tiles, INT32_MAX));
}

struct Split {
  int32_t split_tokens = 0;  // 0: contexts are not split
  int32_t capacity = 0;      // work tiles of any such step
  bool uneven = false;       // some contexts are much longer than others
};

// The smallest split size for which all work tiles fit `capacity`.
int32_t SmallestSplit(std::span<const AttentionSequence> sequences,
                      const PagedLimits& limits,
                      int32_t longest,
                      int32_t capacity) {
  int32_t low = 1;
  int32_t high = CeilDiv(longest, kStride);
  while (low < high) {
    const int32_t middle = (low + high) / 2;
    if (CountTiles(sequences, limits, middle * kStride) <= capacity) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return low * kStride;
}

Split ChooseSplit(std::span<const AttentionSequence> sequences, const PagedLimits& limits) {
  int64_t total = 0;
  int32_t longest = 0;
  int32_t whole = 0;
  for (const AttentionSequence& sequence : sequences) {
    const int32_t tiles = QueryTiles(sequence, limits);
    const int32_t visible = VisibleToTile(sequence, limits);
    total += int64_t{tiles} * visible;
    longest = std::max(longest, visible);
    whole += tiles;
  }
  if (limits.padded_rows > 0) whole = limits.padded_rows * CeilDiv(limits.group, limits.tile);
  if (limits.fixed_split > 0) {
    const int32_t work_tiles = CountTiles(sequences, limits, limits.fixed_split);
    if (longest <= limits.fixed_split) return {0, whole};
    return {limits.fixed_split, limits.padded_rows > 0 ? PowerOfTwo(work_tiles) : work_tiles};
  }
  const int64_t fair = total / limits.slots;  // positions per slot
  if (longest <= kMaxWholeContext || longest <= fair + fair / 4) {
    return {0, whole, longest > kMaxWholeContext && 3 * total < 2 * int64_t{longest} * whole};
  }
  // Enough to fill the slots once; next to many whole contexts, the same again for the longer ones.
  const int32_t capacity = 3 * whole < 2 * limits.slots ? limits.slots : whole + limits.slots;
  const int32_t split = SmallestSplit(sequences, limits, longest, capacity);
  if (split >= longest) return {0, whole};
  return {split, limits.padded_rows > 0 ? capacity : CountTiles(sequences, limits, split)};
}

// The order of the sequences on the device. With uneven lengths the longest come first, so that the
// last work tiles are short.
void Order(std::span<const AttentionSequence> sequences,
           const PagedLimits& limits,
           bool uneven,
           std::vector<uint64_t>& order) {
  order.clear();
  for (size_t i = 0; i < sequences.size(); ++i) {
    const auto visible = static_cast<uint64_t>(VisibleToTile(sequences[i], limits));
    order.push_back((INT32_MAX - visible) << 32 | i);
  }
  if (uneven) std::sort(order.begin(), order.end());
}

int32_t UnitsOf(const StreamKRow& row) {
  return (row.end - 1) / kUnitPositions - row.begin / kUnitPositions + 1;
}

// Fills work tiles of up to `capacity` units, which is at least the largest split, with the splits
// of `rows` in order. Returns false when `count` work tiles do not suffice. Lists them in
// `work_tiles` unless it is null.
bool FillWithSplits(std::span<StreamKRow> rows,
                    int32_t capacity,
                    int32_t count,
                    std::vector<WorkTile>* work_tiles) {
  int32_t tile = 0;
  int32_t room = capacity;
  for (size_t listed = 0; listed < rows.size(); ++listed) {
    StreamKRow& row = rows[listed];
    const int32_t units = UnitsOf(row);
    for (int32_t unit = 0; unit < units;) {
      const int32_t left = units - unit;
      const int32_t taken = left <= room ? left : room / row.split_units * row.split_units;
      if (taken == 0) {
        if (++tile == count) return false;
        room = capacity;
        continue;
      }
      if (work_tiles != nullptr) {
        if (unit == 0) row.first_tile = tile;
        WorkTile& work_tile = (*work_tiles)[tile];
        if (work_tile.units == 0) {
          work_tile = {static_cast<int32_t>(listed), unit, 0, row};
        }
        work_tile.units += taken;
      }
      unit += taken;
      room -= taken;
    }
  }
  return true;
}

void Pad(PagedTiles& out, int32_t capacity, int32_t padded_rows) {
  out.valid.assign(out.sequence.size(), 1);
  out.valid.resize(capacity, 0);
  out.sequence.resize(capacity, 0);
  out.query_tile.resize(capacity, 0);
  out.split.resize(capacity, 0);
  if (!out.combined.empty()) out.combined.resize(padded_rows);
}

}  // namespace

std::vector<AttentionSequence> SequencesToCompute(const StepInput& input,
                                                  std::span<const int32_t> table_starts,
                                                  bool only_logit_rows) {
  std::vector<AttentionSequence> sequences;
  sequences.reserve(input.sequences.size());
  int32_t stored = 0;
  for (size_t i = 0; i < input.sequences.size(); ++i) {
    const SequenceRows& rows = input.sequences[i];
    if (i == 0 || rows.first_block != input.sequences[i - 1].first_block) stored = rows.context;
    int32_t first_needed = 0;
    if (only_logit_rows) {
      first_needed = FirstLogitRow(input, rows.first_row, rows.row_count) - rows.first_row;
      if (first_needed == rows.row_count) continue;
    }
    sequences.push_back({static_cast<int32_t>(i),
                         rows.first_row,
                         rows.row_count,
                         rows.context + rows.row_count,
                         table_starts[i],
                         first_needed,
                         stored});
  }
  return sequences;
}

void SplitPaged(std::span<const AttentionSequence> sequences,
                const PagedLimits& limits,
                PagedTiles& out) {
  const Split choice = ChooseSplit(sequences, limits);
  const bool whole = choice.split_tokens == 0;
  out.sequence.clear();
  out.query_tile.clear();
  out.split.clear();
  out.valid.clear();
  out.combined.clear();
  out.out_starts.assign(limits.sequences + 1, 0);
  out.split_tokens = whole ? INT32_MAX / 2 : choice.split_tokens;
  out.partials = 0;
  Order(sequences, limits, choice.uneven, out.order);
  for (const uint64_t key : out.order) {
    const AttentionSequence& sequence = sequences[key & UINT32_MAX];
    const int32_t splits =
        whole ? 1 : CeilDiv(VisibleToTile(sequence, limits), choice.split_tokens);
    out.out_starts[sequence.index] = whole ? sequence.row : out.partials;
    // Late tiles see the most positions and start first.
    for (int32_t tile = QueryTiles(sequence, limits) - 1; tile >= 0; --tile) {
      for (int32_t split = 0; split < splits; ++split) {
        out.sequence.push_back(sequence.index);
        out.query_tile.push_back(tile);
        out.split.push_back(split);
      }
    }
    if (whole) continue;
    for (int32_t row = 0; row < sequence.rows; ++row) {
      out.combined.push_back({sequence.row + row, out.partials, splits});
      out.partials += splits;
    }
  }
  if (limits.padded_rows == 0) return;
  Pad(out, choice.capacity, limits.padded_rows);
  if (!whole) out.partials = choice.capacity;
}

void SplitStreamK(std::span<StreamKRow> rows, int32_t count, std::vector<WorkTile>& work_tiles) {
  int64_t total = 0;
  for (StreamKRow& row : rows) {
    total += UnitsOf(row);
    row.parts = 0;
  }
  const int64_t used = std::clamp<int64_t>(total / kMinUnits, 1, count);
  work_tiles.assign(count, {});
  size_t listed = 0;
  int64_t before = 0;  // units of the rows before `listed`
  for (int64_t i = 0; i < used; ++i) {
    const int64_t begin = total * i / used;
    const int64_t end = total * (i + 1) / used;
    WorkTile& work_tile = work_tiles[i];
    work_tile.units = static_cast<int32_t>(end - begin);
    work_tile.listed = static_cast<int32_t>(listed);
    work_tile.unit = static_cast<int32_t>(begin - before);
    for (int64_t row_end = before; row_end < end;) {
      StreamKRow& row = rows[listed];
      if (row.parts++ == 0) row.first_tile = static_cast<int32_t>(i);
      row.first_partial = row.first_tile + static_cast<int32_t>(listed);
      row_end = before + UnitsOf(row);
      if (row_end > end) break;
      before = row_end;
      ++listed;
    }
  }
  for (WorkTile& work_tile : work_tiles) {
    if (work_tile.units > 0) work_tile.row = rows[work_tile.listed];
  }
}

int32_t FixedSplitUnits(int32_t units) {
  return std::clamp(CeilDiv(units, kFixedSplits), kMinSplitUnits, kMaxSplitUnits);
}

int32_t SplitFixed(std::span<StreamKRow> rows, int32_t count, std::vector<WorkTile>& work_tiles) {
  int32_t partials = 0;
  int64_t total = 0;
  int32_t largest = 0;  // units of a split
  for (StreamKRow& row : rows) {
    const int32_t units = UnitsOf(row);
    row.split_units = FixedSplitUnits(units);
    row.parts = CeilDiv(units, row.split_units);
    row.first_partial = partials;
    partials += row.parts;
    total += units;
    largest = std::max(largest, std::min(units, row.split_units));
  }
  // Work tiles that are filled in order to more than `fair` units each hold all splits.
  const int32_t fair = CeilDiv(total, count);
  int32_t low = std::max(fair, largest);
  int32_t high = fair + largest;
  while (low < high) {
    const int32_t middle = (low + high) / 2;
    if (FillWithSplits(rows, middle, count, nullptr)) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  work_tiles.assign(count, {});
  FillWithSplits(rows, low, count, &work_tiles);
  return partials;
}

void SpreadOverSms(std::vector<WorkTile>& work_tiles) {
  const auto count = static_cast<int64_t>(work_tiles.size());
  // The first multiples of a step near the golden section, modulo the count, lie evenly among
  // neighbours and among places at a regular distance.
  auto step = static_cast<int64_t>(0.618 * static_cast<double>(count));
  while (std::gcd(step, count) != 1) ++step;
  std::vector<uint64_t> order;  // by falling size, then by place
  for (uint64_t i = 0; i < work_tiles.size(); ++i) {
    order.push_back(static_cast<uint64_t>(INT32_MAX - work_tiles[i].units) << 32 | i);
  }
  std::sort(order.begin(), order.end());
  std::vector<WorkTile> spread(work_tiles.size());
  for (int64_t i = 0; i < count; ++i) {
    spread[i * step % count] = work_tiles[order[i] & UINT32_MAX];
  }
  work_tiles.swap(spread);
}

std::vector<CombinedRow> RowsOfManyParts(std::span<const StreamKRow> rows, int32_t most) {
  std::vector<CombinedRow> combined;
  for (const StreamKRow& row : rows) {
    if (row.parts > most) combined.push_back({row.row, row.first_partial, row.parts});
  }
  return combined;
}

void ScheduleRagged(std::span<const AttentionSequence> sequences,
                    std::span<const int32_t> key_starts,
                    int32_t tile,
                    int32_t q_heads,
                    int32_t sm_count,
                    RaggedTiles& out) {
  struct Tile {
    int32_t which;
    int32_t tile;
    int32_t cost;
  };
  std::vector<Tile> tiles;
  for (size_t i = 0; i < sequences.size(); ++i) {
    const AttentionSequence& sequence = sequences[i];
    for (int32_t t = CeilDiv(sequence.rows, tile) - 1; t >= sequence.first_needed / tile; --t) {
      const int32_t last = std::min(sequence.rows, (t + 1) * tile);
      tiles.push_back({static_cast<int32_t>(i), t, sequence.length - sequence.rows + last});
    }
  }
  // Sorted within a head, so that thread blocks share its keys in the L2 cache.
  std::stable_sort(
      tiles.begin(), tiles.end(), [](const Tile& a, const Tile& b) { return a.cost > b.cost; });
  using Load = std::pair<int64_t, int32_t>;  // cost so far, thread block
  std::priority_queue<Load, std::vector<Load>, std::greater<>> loads;
  for (int32_t i = 0; i < sm_count; ++i) loads.emplace(0, i);
  const size_t work_tiles = tiles.size() * static_cast<size_t>(q_heads);
  std::vector<int32_t> owner(work_tiles);
  out.starts.assign(sm_count + 1, 0);
  for (size_t i = 0; i < work_tiles; ++i) {
    const auto [cost, block] = loads.top();
    loads.pop();
    // Loading a query tile and storing its result costs about as much as two tiles of keys.
    loads.emplace(cost + tiles[i % tiles.size()].cost + int64_t{2} * tile, block);
    owner[i] = block;
    ++out.starts[block + 1];
  }
  for (int32_t i = 0; i < sm_count; ++i) out.starts[i + 1] += out.starts[i];
  std::vector<int32_t> next(out.starts.begin(), out.starts.end() - 1);
  for (std::vector<int32_t>* list : {&out.head,
                                     &out.query_tile,
                                     &out.query_start,
                                     &out.query_rows,
                                     &out.key_start,
                                     &out.keys,
                                     &out.sequence}) {
    list->resize(work_tiles);
  }
  for (size_t i = 0; i < work_tiles; ++i) {
    const Tile& work_tile = tiles[i % tiles.size()];
    const AttentionSequence& sequence = sequences[work_tile.which];
    const int32_t at = next[owner[i]]++;
    out.head[at] = static_cast<int32_t>(i / tiles.size());
    out.query_tile[at] = work_tile.tile;
    out.query_start[at] = sequence.row;
    out.query_rows[at] = sequence.rows;
    out.key_start[at] = key_starts[work_tile.which];
    out.keys[at] = sequence.length;
    out.sequence[at] = sequence.index;
  }
}

void SplitPortable(std::span<const AttentionSequence> sequences,
                   const PortableLimits& limits,
                   PortableTiles& out) {
  const int32_t split_size = limits.split;
  out.list.clear();
  out.combined.clear();
  out.partials = 0;
  for (const AttentionSequence& sequence : sequences) {
    for (int32_t i = 0; i < sequence.rows; ++i) {
      const int32_t end = sequence.length - sequence.rows + i + 1;
      int32_t begin = limits.window > 0 ? std::max(0, end - limits.window) : 0;
      if (limits.chunk > 0) begin = std::max(begin, (end - 1) / limits.chunk * limits.chunk);
      RowTile work_tile = {sequence.row + i, sequence.table_start, begin, end, -1};
      const int32_t splits = CeilDiv(end, split_size) - begin / split_size;
      if (splits == 1 || sequence.rows > limits.split_rows) {
        out.list.push_back(work_tile);
        continue;
      }
      out.combined.push_back({work_tile.row, out.partials, splits});
      for (int32_t split = begin / split_size; split * split_size < end; ++split) {
        work_tile.begin = std::max(begin, split * split_size);
        work_tile.end = std::min(end, (split + 1) * split_size);
        work_tile.partial = out.partials++;
        out.list.push_back(work_tile);
      }
    }
  }
  if (limits.padded_rows == 0) return;
  const auto listed = static_cast<int32_t>(out.list.size());
  out.list.resize(std::max(limits.padded_rows, PowerOfTwo(listed)));
  if (!out.combined.empty()) out.combined.resize(limits.padded_rows);
  out.partials = static_cast<int32_t>(out.list.size());
}

}  // namespace baton::cuda
