#include "kernels/cuda/attention_pieces.h"

#include <algorithm>
#include <bit>
#include <queue>

#include "kernels/cuda/rounding.h"

namespace baton::cuda {
namespace {

// Positions of K that the paged kernel loads at a time; parts are multiples of it.
constexpr int32_t kStride = 128;
// Shorter contexts are not worth a second kernel.
constexpr int32_t kShortContext = 256;
// Units of single rows that are worth a thread block.
constexpr int32_t kFewestUnits = 4;
// The portable kernel splits sequences of at most this many rows.
constexpr int32_t kFewRows = 32;

int32_t PowerOfTwo(int32_t value) {
  return static_cast<int32_t>(std::bit_ceil(static_cast<uint32_t>(std::max(value, 1))));
}

int32_t QueryTiles(const AttendingSequence& sequence, const PagedLimits& limits) {
  return CeilDiv(int64_t{sequence.rows} * limits.group, limits.tile);
}

// Positions that a tile may see: the kernel's own formula, since it finds its results by it.
int32_t VisibleToTile(const AttendingSequence& sequence, const PagedLimits& limits) {
  if (limits.window == 0) return sequence.length;
  return std::min(sequence.length, limits.window - 1 + limits.tile);
}

int32_t CountPieces(std::span<const AttendingSequence> sequences,
                    const PagedLimits& limits,
                    int32_t part_tokens) {
  int64_t pieces = 0;
  for (const AttendingSequence& sequence : sequences) {
    pieces += int64_t{QueryTiles(sequence, limits)} *
              CeilDiv(VisibleToTile(sequence, limits), part_tokens);
  }
  return static_cast<int32_t>(std::min<int64_t>(pieces, INT32_MAX));
}

struct Split {
  int32_t part_tokens = 0;  // 0: whole contexts
  int32_t capacity = 0;     // pieces of any such step
  bool uneven = false;      // some contexts are much longer than others
};

// The fewest positions a part may have so that all pieces fit `capacity`.
int32_t SmallestPart(std::span<const AttendingSequence> sequences,
                     const PagedLimits& limits,
                     int32_t longest,
                     int32_t capacity) {
  int32_t low = 1;
  int32_t high = CeilDiv(longest, kStride);
  while (low < high) {
    const int32_t middle = (low + high) / 2;
    if (CountPieces(sequences, limits, middle * kStride) <= capacity) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return low * kStride;
}

Split ChooseSplit(std::span<const AttendingSequence> sequences, const PagedLimits& limits) {
  int64_t total = 0;
  int32_t longest = 0;
  int32_t whole = 0;
  for (const AttendingSequence& sequence : sequences) {
    const int32_t tiles = QueryTiles(sequence, limits);
    const int32_t visible = VisibleToTile(sequence, limits);
    total += int64_t{tiles} * visible;
    longest = std::max(longest, visible);
    whole += tiles;
  }
  if (limits.padded_rows > 0) whole = limits.padded_rows * CeilDiv(limits.group, limits.tile);
  if (limits.fixed_part > 0) {
    const int32_t pieces = CountPieces(sequences, limits, limits.fixed_part);
    if (longest <= limits.fixed_part) return {0, whole};
    return {limits.fixed_part, limits.padded_rows > 0 ? PowerOfTwo(pieces) : pieces};
  }
  const int64_t fair = total / limits.slots;  // positions of a slot
  if (longest <= kShortContext || longest <= fair + fair / 4) {
    return {0, whole, longest > kShortContext && 3 * total < 2 * int64_t{longest} * whole};
  }
  // What fills the slots once; beside many whole contexts, as much again for what is longer.
  const int32_t capacity = 3 * whole < 2 * limits.slots ? limits.slots : whole + limits.slots;
  const int32_t part = SmallestPart(sequences, limits, longest, capacity);
  if (part >= longest) return {0, whole};
  return {part, limits.padded_rows > 0 ? capacity : CountPieces(sequences, limits, part)};
}

// The order in which sequences are given to the device: where it matters, the longest first, so
// that the last pieces to run are short.
void Order(std::span<const AttendingSequence> sequences,
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

void Pad(PagedPieces& out, int32_t capacity, int32_t padded_rows) {
  out.valid.assign(out.sequence.size(), 1);
  out.valid.resize(capacity, 0);
  out.sequence.resize(capacity, 0);
  out.query_tile.resize(capacity, 0);
  out.part.resize(capacity, 0);
  if (!out.merged.empty()) out.merged.resize(padded_rows);
}

}  // namespace

void CutPaged(std::span<const AttendingSequence> sequences,
              const PagedLimits& limits,
              PagedPieces& out) {
  const Split split = ChooseSplit(sequences, limits);
  const bool whole = split.part_tokens == 0;
  out.sequence.clear();
  out.query_tile.clear();
  out.part.clear();
  out.valid.clear();
  out.merged.clear();
  out.out_starts.assign(limits.sequences + 1, 0);
  out.part_tokens = whole ? INT32_MAX / 2 : split.part_tokens;
  out.partials = 0;
  Order(sequences, limits, split.uneven, out.order);
  for (const uint64_t key : out.order) {
    const AttendingSequence& sequence = sequences[key & UINT32_MAX];
    const int32_t parts = whole ? 1 : CeilDiv(VisibleToTile(sequence, limits), split.part_tokens);
    out.out_starts[sequence.index] = whole ? sequence.row : out.partials;
    // Late tiles see most: they begin first.
    for (int32_t tile = QueryTiles(sequence, limits) - 1; tile >= 0; --tile) {
      for (int32_t part = 0; part < parts; ++part) {
        out.sequence.push_back(sequence.index);
        out.query_tile.push_back(tile);
        out.part.push_back(part);
      }
    }
    if (whole) continue;
    for (int32_t row = 0; row < sequence.rows; ++row) {
      out.merged.push_back({sequence.row + row, out.partials, parts});
      out.partials += parts;
    }
  }
  if (limits.padded_rows == 0) return;
  Pad(out, split.capacity, limits.padded_rows);
  if (!whole) out.partials = split.capacity;
}

void CutShares(std::span<SharedRow> rows, int32_t count, std::vector<Share>& shares) {
  const auto units_of = [](const SharedRow& row) {
    return int64_t{(row.end - 1) / kUnitPositions - row.begin / kUnitPositions + 1};
  };
  int64_t total = 0;
  for (SharedRow& row : rows) {
    total += units_of(row);
    row.shares = 0;
  }
  const int64_t used = std::clamp<int64_t>(total / kFewestUnits, 1, count);
  shares.assign(count, {});
  size_t listed = 0;
  int64_t before = 0;  // units of rows in front of it
  for (int64_t i = 0; i < used; ++i) {
    const int64_t begin = total * i / used;
    const int64_t end = total * (i + 1) / used;
    Share& share = shares[i];
    share.units = static_cast<int32_t>(end - begin);
    share.listed = static_cast<int32_t>(listed);
    share.unit = static_cast<int32_t>(begin - before);
    for (int64_t row_end = before; row_end < end;) {
      SharedRow& row = rows[listed];
      if (row.shares++ == 0) row.first_share = static_cast<int32_t>(i);
      row_end = before + units_of(row);
      if (row_end > end) break;
      before = row_end;
      ++listed;
    }
  }
  for (Share& share : shares) {
    if (share.units > 0) share.row = rows[share.listed];
  }
}

std::vector<MergedRow> RowsInManyShares(std::span<const SharedRow> rows, int32_t most) {
  std::vector<MergedRow> merged;
  for (size_t listed = 0; listed < rows.size(); ++listed) {
    const SharedRow& row = rows[listed];
    if (row.shares <= most) continue;
    merged.push_back({row.row, row.first_share + static_cast<int32_t>(listed), row.shares});
  }
  return merged;
}

void CutRagged(std::span<const AttendingSequence> sequences,
               std::span<const int32_t> key_starts,
               int32_t tile,
               int32_t q_heads,
               int32_t processors,
               RaggedPieces& out) {
  struct Tile {
    int32_t which;
    int32_t tile;
    int32_t cost;
  };
  std::vector<Tile> tiles;
  for (size_t i = 0; i < sequences.size(); ++i) {
    const AttendingSequence& sequence = sequences[i];
    for (int32_t t = CeilDiv(sequence.rows, tile) - 1; t >= 0; --t) {
      const int32_t last = std::min(sequence.rows, (t + 1) * tile);
      tiles.push_back({static_cast<int32_t>(i), t, sequence.length - sequence.rows + last});
    }
  }
  // Within a head, so that thread blocks share its keys in the cache.
  std::stable_sort(
      tiles.begin(), tiles.end(), [](const Tile& a, const Tile& b) { return a.cost > b.cost; });
  using Load = std::pair<int64_t, int32_t>;  // cost so far, thread block
  std::priority_queue<Load, std::vector<Load>, std::greater<>> loads;
  for (int32_t i = 0; i < processors; ++i) loads.emplace(0, i);
  const size_t pieces = tiles.size() * static_cast<size_t>(q_heads);
  std::vector<int32_t> owner(pieces);
  out.starts.assign(processors + 1, 0);
  for (size_t i = 0; i < pieces; ++i) {
    const auto [cost, block] = loads.top();
    loads.pop();
    // Loading a tile of queries and writing its results costs about as much as two tiles of keys.
    loads.emplace(cost + tiles[i % tiles.size()].cost + int64_t{2} * tile, block);
    owner[i] = block;
    ++out.starts[block + 1];
  }
  for (int32_t i = 0; i < processors; ++i) out.starts[i + 1] += out.starts[i];
  std::vector<int32_t> next(out.starts.begin(), out.starts.end() - 1);
  for (std::vector<int32_t>* list : {&out.head,
                                     &out.query_tile,
                                     &out.query_start,
                                     &out.query_rows,
                                     &out.key_start,
                                     &out.keys,
                                     &out.sequence}) {
    list->resize(pieces);
  }
  for (size_t i = 0; i < pieces; ++i) {
    const Tile& piece = tiles[i % tiles.size()];
    const AttendingSequence& sequence = sequences[piece.which];
    const int32_t at = next[owner[i]]++;
    out.head[at] = static_cast<int32_t>(i / tiles.size());
    out.query_tile[at] = piece.tile;
    out.query_start[at] = sequence.row;
    out.query_rows[at] = sequence.rows;
    out.key_start[at] = key_starts[piece.which];
    out.keys[at] = sequence.length;
    out.sequence[at] = sequence.index;
  }
}

void CutPortable(std::span<const AttendingSequence> sequences,
                 int32_t window,
                 int32_t padded_rows,
                 PortablePieces& out) {
  out.list.clear();
  out.merged.clear();
  out.partials = 0;
  for (const AttendingSequence& sequence : sequences) {
    for (int32_t i = 0; i < sequence.rows; ++i) {
      const int32_t end = sequence.length - sequence.rows + i + 1;
      const int32_t begin = window > 0 ? std::max(0, end - window) : 0;
      RowPiece piece = {sequence.row + i, sequence.table_start, begin, end, -1};
      const int32_t parts = CeilDiv(end, kPortablePart) - begin / kPortablePart;
      if (parts == 1 || sequence.rows > kFewRows) {
        out.list.push_back(piece);
        continue;
      }
      out.merged.push_back({piece.row, out.partials, parts});
      for (int32_t part = begin / kPortablePart; part * kPortablePart < end; ++part) {
        piece.begin = std::max(begin, part * kPortablePart);
        piece.end = std::min(end, (part + 1) * kPortablePart);
        piece.partial = out.partials++;
        out.list.push_back(piece);
      }
    }
  }
  if (padded_rows == 0) return;
  out.list.resize(std::max(padded_rows, PowerOfTwo(static_cast<int32_t>(out.list.size()))));
  if (!out.merged.empty()) out.merged.resize(padded_rows);
  out.partials = static_cast<int32_t>(out.list.size());
}

}  // namespace baton::cuda
