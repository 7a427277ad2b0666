#include "kernels/cuda/attention/work_tiles.h"

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <tuple>

#include <gtest/gtest.h>

namespace baton::cuda {
namespace {

using Sequences = std::vector<AttentionSequence>;

// Makes sequences from their (context, rows).
Sequences Make(const std::vector<std::pair<int32_t, int32_t>>& lengths) {
  Sequences sequences;
  int32_t row = 0;
  int32_t blocks = 0;
  for (const auto& [context, rows] : lengths) {
    const auto index = static_cast<int32_t>(sequences.size());
    sequences.push_back({index, row, rows, context + rows, blocks});
    row += rows;
    blocks += (context + rows + 15) / 16;
  }
  return sequences;
}

int32_t CeilDiv(int32_t a, int32_t b) {
  return (a + b - 1) / b;
}

// Checks that every (sequence, tile, split) occurs once, and that partial results are in order and
// without gaps.
void CheckPaged(const Sequences& sequences,
                const PagedLimits& limits,
                const PagedTiles& work_tiles) {
  std::map<int32_t, const AttentionSequence*> by_index;
  for (const AttentionSequence& s : sequences) by_index[s.index] = &s;
  std::set<std::tuple<int32_t, int32_t, int32_t>> seen;
  size_t valid = 0;
  for (size_t i = 0; i < work_tiles.sequence.size(); ++i) {
    if (!work_tiles.valid.empty() && work_tiles.valid[i] == 0) continue;
    ++valid;
    ASSERT_TRUE(
        seen.emplace(work_tiles.sequence[i], work_tiles.query_tile[i], work_tiles.split[i]).second);
  }
  size_t expected = 0;
  int32_t next = 0;
  size_t combined = 0;
  for (const AttentionSequence& s : sequences) {
    const int32_t visible =
        limits.window > 0 ? std::min(s.length, limits.window - 1 + limits.tile) : s.length;
    const int32_t splits =
        work_tiles.combined.empty() ? 1 : CeilDiv(visible, work_tiles.split_tokens);
    for (int32_t tile = 0; tile < CeilDiv(s.rows * limits.group, limits.tile); ++tile) {
      for (int32_t split = 0; split < splits; ++split) {
        ASSERT_EQ(seen.count({s.index, tile, split}), 1u);
        ++expected;
      }
    }
    if (work_tiles.combined.empty()) {
      EXPECT_EQ(work_tiles.out_starts[s.index], s.row);
      continue;
    }
    EXPECT_EQ(work_tiles.out_starts[s.index], next);
    for (int32_t row = 0; row < s.rows; ++row, ++combined, next += splits) {
      EXPECT_EQ(work_tiles.combined[combined].row, s.row + row);
      EXPECT_EQ(work_tiles.combined[combined].first, next);
      EXPECT_EQ(work_tiles.combined[combined].count, splits);
    }
  }
  EXPECT_EQ(valid, expected);
  EXPECT_LE(next, work_tiles.partials);
  for (; combined < work_tiles.combined.size(); ++combined)
    EXPECT_EQ(work_tiles.combined[combined].row, -1);
}

TEST(AttentionPiecesTest, CoverEveryTileAndPart) {
  std::mt19937 random(1);
  PagedTiles work_tiles;
  for (int i = 0; i < 300; ++i) {
    PagedLimits limits;
    limits.tile = std::vector{16, 64, 128}[random() % 3];
    limits.group = 1 + static_cast<int32_t>(random() % 24);
    limits.window = random() % 3 == 0 ? 1 + static_cast<int32_t>(random() % 3000) : 0;
    limits.slots = 1 + static_cast<int32_t>(random() % 70);
    limits.fixed_split = random() % 4 == 0 ? 1024 : 0;
    std::vector<std::pair<int32_t, int32_t>> lengths;
    const bool decode = random() % 2 == 0;
    const auto count = 1 + random() % 40;
    for (size_t s = 0; s < count; ++s) {
      lengths.emplace_back(random() % (random() % 5 == 0 ? 60000 : 3000),
                           decode ? 1 : 1 + random() % 300);
    }
    const Sequences sequences = Make(lengths);
    limits.padded_rows = decode && random() % 2 == 0 ? static_cast<int32_t>(count) + 5 : 0;
    limits.sequences = std::max(limits.padded_rows, static_cast<int32_t>(count));
    SplitPaged(sequences, limits, work_tiles);
    CheckPaged(sequences, limits, work_tiles);
    if (HasFatalFailure()) return;
  }
}

TEST(AttentionPiecesTest, RecordedSizesDependOnRowsAlone) {
  PagedTiles work_tiles;
  PagedLimits limits;
  limits.group = 4;
  limits.slots = 33;
  limits.padded_rows = 16;
  limits.sequences = 16;
  std::set<size_t> whole;
  std::set<size_t> split;
  std::mt19937 random(2);
  for (int i = 0; i < 300; ++i) {
    std::vector<std::pair<int32_t, int32_t>> lengths;
    const auto most = 1 + random() % 20000;
    for (size_t s = 0; s < 9 + random() % 8; ++s) lengths.emplace_back(random() % most, 1);
    SplitPaged(Make(lengths), limits, work_tiles);
    (work_tiles.combined.empty() ? whole : split).insert(work_tiles.sequence.size());
    EXPECT_EQ(work_tiles.out_starts.size(), 17u);
    EXPECT_TRUE(work_tiles.combined.empty() || work_tiles.combined.size() == 16u);
  }
  EXPECT_EQ(whole.size(), 1u);
  EXPECT_EQ(split.size(), 1u);
}

TEST(AttentionPiecesTest, FixedPartsDoNotDependOnOthers) {
  PagedTiles work_tiles;
  PagedLimits limits;
  limits.slots = 33;
  limits.fixed_split = 1024;
  limits.sequences = 40;
  for (const int32_t others : {0, 1, 39}) {
    std::vector<std::pair<int32_t, int32_t>> lengths(1 + others, {700, 1});
    lengths[0] = {5000, 1};
    SplitPaged(Make(lengths), limits, work_tiles);
    EXPECT_EQ(work_tiles.split_tokens, 1024);
    EXPECT_EQ(work_tiles.combined[0].count, 5);
  }
}

// A row that is computed singly sees KV that other rows of its sequence store in the same step.
TEST(AttentionPiecesTest, KnowsWhatEarlierStepsStored) {
  const std::vector<SequenceRows> rows = {
      {0, 1, 100, 0}, {1, 1, 40, 7}, {2, 1, 41, 7}, {3, 1, 42, 7}, {4, 5, 9, 10}};
  const std::vector<int32_t> table_starts = {0, 7, 10, 13, 16, 17};
  const std::vector<int32_t> logit_rows = {0, 3, 7};
  StepInput input;
  input.sequences = rows;
  input.logit_rows = logit_rows;
  const auto all = SequencesToCompute(input, table_starts, false);
  ASSERT_EQ(all.size(), 5u);
  EXPECT_EQ(all[0].stored, 100);
  for (const size_t i : {1, 2, 3}) {
    EXPECT_EQ(all[i].stored, 40);
    EXPECT_EQ(all[i].length, 40 + static_cast<int32_t>(i));
    EXPECT_EQ(all[i].table_start, table_starts[i]);
  }
  EXPECT_EQ(all[4].stored, 9);
  const auto few = SequencesToCompute(input, table_starts, true);
  ASSERT_EQ(few.size(), 3u);
  EXPECT_EQ(few[1].index, 3);
  EXPECT_EQ(few[1].stored, 40);
  EXPECT_EQ(few[2].first_needed, 3);
}

// Up to 70 rows that see up to `longest` positions: from the first one on, or, in a window, from a
// later one.
std::vector<StreamKRow> RandomRows(std::mt19937& random, int32_t longest, bool windows) {
  std::vector<StreamKRow> rows;
  for (size_t r = 0; r < 1 + random() % 70; ++r) {
    const auto end = static_cast<int32_t>(1 + random() % longest);
    const auto begin = static_cast<int32_t>(windows ? random() % end : 0);
    rows.push_back({static_cast<int32_t>(r), 0, begin, end, 0});
  }
  return rows;
}

// The units of 16 positions that the row sees.
int32_t UnitsOf(const StreamKRow& row) {
  return (row.end - 1) / 16 - row.begin / 16 + 1;
}

TEST(AttentionPiecesTest, SharesCoverEveryUnitOnceAndEvenly) {
  std::mt19937 random(4);
  std::vector<WorkTile> work_tiles;
  for (int i = 0; i < 200; ++i) {
    std::vector<StreamKRow> rows = RandomRows(random, i % 2 == 0 ? 4000 : 20, i % 3 == 0);
    const auto count = static_cast<int32_t>(1 + random() % 132);
    SplitStreamK(rows, count, work_tiles);
    ASSERT_EQ(work_tiles.size(), static_cast<size_t>(count));
    std::vector<std::set<int32_t>> seen(rows.size());    // units of each row
    std::vector<std::set<int32_t>> owners(rows.size());  // work tiles of each row
    int32_t least = INT32_MAX;
    int32_t most = 0;
    bool more = true;
    for (int32_t at = 0; at < count; ++at) {
      const WorkTile& work_tile = work_tiles[at];
      more = more && work_tile.units > 0;
      ASSERT_EQ(more, work_tile.units > 0);
      if (!more) continue;
      EXPECT_EQ(work_tile.row.row, rows.at(work_tile.listed).row);
      EXPECT_EQ(work_tile.row.parts, rows.at(work_tile.listed).parts);
      least = std::min(least, work_tile.units);
      most = std::max(most, work_tile.units);
      int32_t listed = work_tile.listed;
      int32_t unit = work_tile.unit;
      for (int32_t u = 0; u < work_tile.units; ++u) {
        const StreamKRow& row = rows.at(listed);
        ASSERT_TRUE(seen[listed].insert(unit).second);
        owners[listed].insert(at);
        if (++unit == UnitsOf(row)) {
          ++listed;
          unit = 0;
        }
      }
    }
    EXPECT_LE(most - least, 1);
    for (size_t r = 0; r < rows.size(); ++r) {
      EXPECT_EQ(static_cast<int32_t>(seen[r].size()), UnitsOf(rows[r]));
      EXPECT_EQ(rows[r].first_tile, *owners[r].begin());
      EXPECT_EQ(rows[r].parts, static_cast<int32_t>(owners[r].size()));
      EXPECT_EQ(*owners[r].rbegin(), rows[r].first_tile + rows[r].parts - 1);
    }
    // Each part has a separate place for its partial result.
    std::set<int32_t> places;
    for (const StreamKRow& row : rows) {
      for (int32_t part = 0; part < row.parts; ++part) {
        EXPECT_TRUE(places.insert(row.first_partial + part).second);
      }
    }
    EXPECT_LT(*places.rbegin(), count + static_cast<int32_t>(rows.size()));
    for (const CombinedRow& combined : RowsOfManyParts(rows, 3)) {
      const StreamKRow& row = rows.at(combined.row);
      EXPECT_GT(row.parts, 3);
      EXPECT_EQ(combined.count, row.parts);
      EXPECT_EQ(combined.first, row.first_partial);
    }
    const auto many = static_cast<size_t>(
        std::ranges::count_if(rows, [](const StreamKRow& row) { return row.parts > 3; }));
    EXPECT_EQ(RowsOfManyParts(rows, 3).size(), many);
    EXPECT_LE(many, static_cast<size_t>(count - 1) / 3);
  }
}

// Splits depend on the row alone, work tiles consist of whole splits in their order, and none is
// much larger than its fair share.
TEST(AttentionPiecesTest, FixedSplitsCoverEveryUnitOnce) {
  std::mt19937 random(5);
  std::vector<WorkTile> work_tiles;
  for (int i = 0; i < 200; ++i) {
    std::vector<StreamKRow> rows = RandomRows(random, i % 2 == 0 ? 9000 : 300, i % 3 == 0);
    const auto count = static_cast<int32_t>(1 + random() % (i % 4 < 2 ? 132 : 1056));
    const int32_t partials = SplitFixed(rows, count, work_tiles);
    ASSERT_EQ(work_tiles.size(), static_cast<size_t>(count));
    int32_t total = 0;
    int32_t largest_split = 0;
    int32_t next_partial = 0;
    for (const StreamKRow& row : rows) {
      const int32_t units = UnitsOf(row);
      EXPECT_EQ(row.split_units, FixedSplitUnits(units));
      EXPECT_EQ(row.parts, CeilDiv(units, row.split_units));
      EXPECT_EQ(row.first_partial, next_partial);
      next_partial += row.parts;
      total += units;
      largest_split = std::max(largest_split, std::min(units, row.split_units));
    }
    EXPECT_EQ(partials, next_partial);
    size_t listed = 0;
    int32_t unit = 0;
    for (int32_t at = 0; at < count; ++at) {
      const WorkTile& work_tile = work_tiles[at];
      if (work_tile.units == 0) continue;
      ASSERT_EQ(static_cast<size_t>(work_tile.listed), listed);
      ASSERT_EQ(work_tile.unit, unit);
      EXPECT_EQ(work_tile.unit % rows[listed].split_units, 0);
      EXPECT_EQ(work_tile.row.row, rows[listed].row);
      EXPECT_EQ(work_tile.row.first_partial, rows[listed].first_partial);
      EXPECT_EQ(work_tile.row.split_units, rows[listed].split_units);
      EXPECT_LE(work_tile.units, CeilDiv(total, count) + largest_split);
      for (int32_t left = work_tile.units; left > 0; --left) {
        if (unit == 0) {
          EXPECT_EQ(rows[listed].first_tile, at);
        }
        if (++unit == UnitsOf(rows[listed])) {
          ++listed;
          unit = 0;
        }
      }
    }
    EXPECT_EQ(listed, rows.size());
    EXPECT_EQ(unit, 0);
  }
}

// An SM runs several work tiles: neighbours in the list, or every 132nd. Either way, no SM gets
// many more units than another.
TEST(AttentionPiecesTest, SpreadsFixedSplitsOverSms) {
  constexpr int32_t kSms = 132;
  std::mt19937 random(6);
  std::vector<WorkTile> work_tiles;
  for (const int32_t blocks_per_sm : {2, 4, 8}) {
    for (const int32_t longest : {128, 2100, 4000}) {
      const int32_t count = kSms * blocks_per_sm;
      std::vector<StreamKRow> rows;
      int32_t total = 0;
      for (int32_t i = 0; i < 200; ++i) {
        rows.push_back({i, 0, 0, longest - static_cast<int32_t>(random() % (longest / 2)), 0});
        total += UnitsOf(rows.back());
      }
      SplitFixed(rows, count, work_tiles);
      using Place = std::tuple<int32_t, int32_t, int32_t>;  // row, unit, units
      const auto places = [&] {
        std::set<Place> all;
        for (const WorkTile& tile : work_tiles) {
          if (tile.units > 0) all.emplace(tile.row.row, tile.unit, tile.units);
        }
        return all;
      };
      const std::set<Place> before = places();
      SpreadOverSms(work_tiles);
      EXPECT_EQ(places(), before);
      ASSERT_EQ(work_tiles.size(), static_cast<size_t>(count));
      std::vector<int32_t> of_neighbours(kSms);
      std::vector<int32_t> of_distant(kSms);
      int32_t largest = 0;
      for (int32_t at = 0; at < count; ++at) {
        of_neighbours[at / blocks_per_sm] += work_tiles[at].units;
        of_distant[at % kSms] += work_tiles[at].units;
        largest = std::max(largest, work_tiles[at].units);
      }
      SCOPED_TRACE(::testing::Message() << blocks_per_sm << " of up to " << largest);
      EXPECT_LE(std::ranges::max(of_neighbours), total / kSms + 2 * largest);
      EXPECT_LE(std::ranges::max(of_distant), total / kSms + largest);
    }
  }
  work_tiles.assign(1, {});
  SpreadOverSms(work_tiles);
  EXPECT_EQ(work_tiles.size(), 1u);
}

TEST(AttentionPiecesTest, RaggedPiecesLeaveOutRowsThatAreNotNeeded) {
  RaggedTiles work_tiles;
  Sequences sequences = Make({{0, 1000}, {500, 300}});
  sequences[0].first_needed = 999;
  sequences[1].first_needed = 128;
  const std::vector<int32_t> key_starts = {0, 1000};
  ScheduleRagged(sequences, key_starts, 128, 2, 132, work_tiles);
  std::multiset<std::pair<int32_t, int32_t>> tiles;
  for (size_t i = 0; i < work_tiles.head.size(); ++i) {
    tiles.emplace(work_tiles.sequence[i], work_tiles.query_tile[i]);
  }
  const std::multiset<std::pair<int32_t, int32_t>> want = {
      {0, 7}, {0, 7}, {1, 1}, {1, 1}, {1, 2}, {1, 2}};
  EXPECT_EQ(tiles, want);
}

TEST(AttentionPiecesTest, RaggedPiecesCoverAndBalance) {
  std::mt19937 random(3);
  RaggedTiles work_tiles;
  for (int i = 0; i < 50; ++i) {
    std::vector<std::pair<int32_t, int32_t>> lengths;
    for (size_t s = 0; s < 1 + random() % 5; ++s) {
      lengths.emplace_back(random() % 9000, 2 + random() % 3000);
    }
    const Sequences sequences = Make(lengths);
    std::vector<int32_t> key_starts;
    for (const AttentionSequence& s : sequences) key_starts.push_back(1000 * s.index);
    const int32_t heads = 1 + static_cast<int32_t>(random() % 32);
    ScheduleRagged(sequences, key_starts, 128, heads, 132, work_tiles);
    std::set<std::tuple<int32_t, int32_t, int32_t>> seen;
    ASSERT_EQ(work_tiles.starts.size(), 133u);
    int64_t heaviest = 0;
    int64_t total = 0;
    int64_t largest = 0;
    for (int32_t block = 0; block < 132; ++block) {
      int64_t load = 0;
      for (int32_t at = work_tiles.starts[block]; at < work_tiles.starts[block + 1]; ++at) {
        const AttentionSequence& s = sequences[work_tiles.sequence[at]];
        ASSERT_TRUE(seen.emplace(work_tiles.head[at], s.index, work_tiles.query_tile[at]).second);
        EXPECT_EQ(work_tiles.query_start[at], s.row);
        EXPECT_EQ(work_tiles.query_rows[at], s.rows);
        EXPECT_EQ(work_tiles.keys[at], s.length);
        EXPECT_EQ(work_tiles.key_start[at], 1000 * s.index);
        const int64_t cost =
            s.length - s.rows + std::min(s.rows, 128 * work_tiles.query_tile[at] + 128) + 256;
        load += cost;
        largest = std::max(largest, cost);
      }
      heaviest = std::max(heaviest, load);
      total += load;
    }
    size_t expected = 0;
    for (const AttentionSequence& s : sequences) {
      expected += static_cast<size_t>(heads) * static_cast<size_t>(CeilDiv(s.rows, 128));
    }
    EXPECT_EQ(seen.size(), expected);
    EXPECT_LE(heaviest, total / 132 + largest);
  }
}

TEST(AttentionPiecesTest, PortablePiecesCoverPositions) {
  PortableTiles work_tiles;
  struct Limits {
    int32_t window;
    int32_t chunk;
  };
  for (const Limits limits : {Limits{0, 0},
                              Limits{1, 0},
                              Limits{100, 0},
                              Limits{1500, 0},
                              Limits{5000, 0},
                              Limits{0, 64},
                              Limits{0, 1500},
                              Limits{0, 8192}}) {
    const auto begin_of = [&](int32_t end) {
      if (limits.chunk > 0) return (end - 1) / limits.chunk * limits.chunk;
      return limits.window > 0 ? std::max(0, end - limits.window) : 0;
    };
    const Sequences sequences =
        Make({{0, 1}, {1023, 1}, {1024, 1}, {5000, 1}, {100, 20}, {4000, 3}, {3000, 100}});
    SplitPortable(sequences, {.window = limits.window, .chunk = limits.chunk}, work_tiles);
    std::map<int32_t, std::vector<RowTile>> rows;
    for (const RowTile& work_tile : work_tiles.list) rows[work_tile.row].push_back(work_tile);
    std::map<int32_t, CombinedRow> combined;
    for (const CombinedRow& row : work_tiles.combined) combined[row.row] = row;
    for (const AttentionSequence& s : sequences) {
      for (int32_t i = 0; i < s.rows; ++i) {
        const auto& list = rows[s.row + i];
        const int32_t end = s.length - s.rows + i + 1;
        ASSERT_FALSE(list.empty());
        EXPECT_EQ(list.front().begin, begin_of(end));
        EXPECT_EQ(list.back().end, end);
        for (size_t p = 0; p < list.size(); ++p) {
          EXPECT_EQ(list[p].table_start, s.table_start);
          if (p > 0) {
            EXPECT_EQ(list[p].begin, list[p - 1].end);
            EXPECT_EQ(list[p].begin % kPortableSplit, 0);
          }
          const bool whole = combined.count(s.row + i) == 0;
          EXPECT_EQ(list[p].partial,
                    whole ? -1 : combined[s.row + i].first + static_cast<int32_t>(p));
        }
        if (list.size() > 1) {
          EXPECT_EQ(combined[s.row + i].count, static_cast<int32_t>(list.size()));
        }
      }
    }
  }
}

}  // namespace
}  // namespace baton::cuda
