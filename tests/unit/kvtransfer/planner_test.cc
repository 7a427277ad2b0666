#include "kvtransfer/data_plane/planner.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/conformance/layout_order.h"

namespace baton {
namespace {

// The shards of `pp` × `tp` ranks: layers are divided into stages, heads among the ranks of a
// stage. With more ranks than heads, several ranks hold the same head. Without heads, each rank of
// a stage holds the same.
std::vector<KvShard> Ranks(int32_t layers, int32_t heads, int32_t pp, int32_t tp) {
  std::vector<KvShard> shards;
  for (int32_t p = 0; p < pp; ++p) {
    for (int32_t t = 0; t < tp; ++t) {
      const int32_t first_layer = layers * p / pp;
      const int32_t first_head = tp <= heads ? heads * t / tp : t * heads / tp;
      const int32_t end_head = tp <= heads ? heads * (t + 1) / tp : std::min(first_head + 1, heads);
      const int32_t head_count = end_head - first_head;
      shards.push_back({first_layer, layers * (p + 1) / pp - first_layer, first_head, head_count});
    }
  }
  return shards;
}

// Labels every byte of an arena with its head (block, layer, plane, head) and the offset in it, in
// the documented order of KvLayout. `block_names` are the blocks of `group`; the bytes of other
// blocks, and bytes behind the heads of a block, have empty labels.
std::vector<std::string> Meaning(const KvLayout& layout,
                                 size_t group,
                                 const KvShard& shard,
                                 const std::map<uint32_t, uint32_t>& block_names,
                                 uint32_t block_count) {
  const size_t block_bytes = ShardBlockBytes(layout, shard);
  std::vector<std::string> bytes(block_bytes * block_count);
  for (const auto& [block, name] : block_names) {
    for (const HeadInBlock& head : HeadsInBlock(layout, group, shard)) {
      for (size_t i = 0; i < head.bytes; ++i) {
        bytes[block * block_bytes + head.offset + i] =
            fmt::format("{}.{}.{}.{}.{}", name, head.layer, head.plane, head.head, i);
      }
    }
  }
  return bytes;
}

// The ranks of both sides.
struct Case {
  int32_t p_tp;
  int32_t d_tp;
  int32_t p_pp;
  int32_t d_pp;
};

// Every link writes what the names of its bytes say, no byte is written twice, and all bytes of the
// receiver's blocks are written.
void CheckTiling(const KvLayout& layout, const Case& c) {
  SCOPED_TRACE(fmt::format(
      "{}; P tp {} pp {} D tp {} pp {}", layout.ToString(), c.p_tp, c.p_pp, c.d_tp, c.d_pp));
  const int32_t layers = layout.layers();
  const int32_t heads = layout.sharded_heads();
  const std::vector<KvShard> sources = Ranks(layers, heads, c.p_pp, c.p_tp);
  const std::vector<KvShard> destinations = Ranks(layers, heads, c.d_pp, c.d_tp);
  const auto links = PlanLinks(layout, sources, destinations);
  ASSERT_TRUE(links.ok()) << links.status();
  const std::vector<BlockPair> pairs = {
      {BlockId(2), BlockId(0)}, {BlockId(3), BlockId(1)}, {BlockId(0), BlockId(3)}};
  const std::map<uint32_t, uint32_t> source_names = {{2, 0}, {3, 1}, {0, 2}};
  const std::map<uint32_t, uint32_t> destination_names = {{0, 0}, {1, 1}, {3, 2}};
  for (size_t group = 0; group < static_cast<size_t>(layout.block_groups()); ++group) {
    std::vector<std::vector<std::string>> written;
    for (const KvShard& shard : destinations) {
      written.emplace_back(4 * ShardBlockBytes(layout, shard));
    }
    for (const KvLink& link : *links) {
      if (link.cache_group != group) continue;
      const std::vector<std::string> from =
          Meaning(layout, group, sources[link.source], source_names, 4);
      const std::vector<WriteRun> runs =
          PlanRuns(layout, sources[link.source], destinations[link.destination], link, pairs);
      uint64_t total = 0;
      for (const WriteRun& run : runs) {
        for (uint64_t i = 0; i < run.bytes; ++i) {
          std::string& to = written[link.destination][run.destination + i];
          ASSERT_EQ(to, "") << "written twice";
          to = from[run.source + i];
        }
        total += run.bytes;
      }
      ASSERT_GT(total, 0u);
      ASSERT_EQ(total, pairs.size() * LinkBlockBytes(layout, link));
    }
    for (size_t d = 0; d < destinations.size(); ++d) {
      ASSERT_EQ(written[d], Meaning(layout, group, destinations[d], destination_names, 4));
    }
  }
}

// The blocks of a state: `offset` and those behind it, from the middle on.
std::vector<BlockId> StateBlockIds(int32_t count, uint32_t offset) {
  std::vector<BlockId> blocks;
  for (int32_t i = 0; i < count; ++i) blocks.push_back(BlockId((i + count / 2) % count + offset));
  return blocks;
}

// As Meaning, of a state in `blocks` of an arena of `block_count` blocks.
std::vector<std::string> MeaningOfState(const KvLayout& layout,
                                        const KvShard& shard,
                                        std::span<const BlockId> blocks,
                                        uint32_t block_count) {
  std::vector<std::string> bytes(ShardBlockBytes(layout, shard) * block_count);
  const size_t block_bytes = StateBlockBytes(layout, shard);
  for (const HeadInBlock& head : HeadsInBlock(layout, layout.groups.size() - 1, shard)) {
    for (size_t i = 0; i < head.bytes; ++i) {
      const size_t at = head.offset + i;
      const size_t block = blocks[at / block_bytes].value();
      bytes[block * ShardBlockBytes(layout, shard) + at % block_bytes] =
          fmt::format("{}.{}.{}.{}", head.layer, head.plane, head.head, i);
    }
  }
  return bytes;
}

// Every byte of every receiver's state is written once, from the byte of the same name, and nothing
// else is.
void CheckState(const KvLayout& layout, const Case& c) {
  SCOPED_TRACE(fmt::format("P tp {} pp {} D tp {} pp {}", c.p_tp, c.p_pp, c.d_tp, c.d_pp));
  const std::vector<KvShard> sources =
      Ranks(layout.layers(), layout.sharded_heads(), c.p_pp, c.p_tp);
  const std::vector<KvShard> destinations =
      Ranks(layout.layers(), layout.sharded_heads(), c.d_pp, c.d_tp);
  const std::vector<BlockId> from = StateBlockIds(StateBlocks(layout, sources), 1);
  const std::vector<BlockId> to = StateBlockIds(StateBlocks(layout, destinations), 3);
  const auto from_count = static_cast<uint32_t>(from.size() + 2);
  const auto to_count = static_cast<uint32_t>(to.size() + 4);
  const auto links = PlanLinks(layout, sources, destinations);
  ASSERT_TRUE(links.ok()) << links.status();
  std::vector<std::vector<std::string>> written;
  for (const KvShard& shard : destinations) {
    written.emplace_back(to_count * ShardBlockBytes(layout, shard));
  }
  for (const KvLink& link : *links) {
    if (!layout.groups[link.cache_group].state) continue;
    const std::vector<std::string> meaning =
        MeaningOfState(layout, sources[link.source], from, from_count);
    const std::vector<WriteRun> runs = PlanRuns(
        layout, sources[link.source], destinations[link.destination], link, PairsOfState(from, to));
    uint64_t total = 0;
    for (size_t i = 0; i < runs.size(); ++i) {
      total += runs[i].bytes;
      for (uint64_t byte = 0; byte < runs[i].bytes; ++byte) {
        std::string& name = written[link.destination][runs[i].destination + byte];
        ASSERT_EQ(name, "") << "written twice";
        name = meaning[runs[i].source + byte];
        ASSERT_NE(name, "") << "no byte of a state";
      }
      if (i == 0) continue;
      ASSERT_FALSE(runs[i - 1].source + runs[i - 1].bytes == runs[i].source &&
                   runs[i - 1].destination + runs[i - 1].bytes == runs[i].destination)
          << "not merged";
    }
    ASSERT_EQ(total, LinkBlockBytes(layout, link));
  }
  for (size_t d = 0; d < destinations.size(); ++d) {
    ASSERT_EQ(written[d], MeaningOfState(layout, destinations[d], to, to_count));
  }
}

void CheckAllRanks(const KvLayout& layout) {
  ASSERT_TRUE(layout.Validate().ok()) << layout.Validate();
  for (const int32_t p_tp : {1, 2, 3, 4}) {
    for (const int32_t d_tp : {1, 2, 3, 4}) {
      for (const int32_t p_pp : {1, 2, 4}) {
        for (const int32_t d_pp : {1, 2, 4}) {
          CheckTiling(layout, {p_tp, d_tp, p_pp, d_pp});
          if (testing::Test::HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST(PlannerTest, TilesEveryDestinationByteOnce) {
  for (const int32_t heads : {1, 2, 3, 4, 6}) {
    CheckAllRanks(DenseLayout(
        {.layers = 4, .kv_heads = heads, .head_dim = 1, .block_tokens = 1, .dtype = DType::kF16}));
    if (HasFatalFailure()) return;
  }
}

TEST(PlannerTest, TilesLayoutsOfOtherPlanes) {
  for (KvLayout layout :
       {LatentLayout(4, 5), ScaledFp8Layout(4, 4, 2), MixedLayout(5, 2, 1), MixedLayout(4, 6, 1)}) {
    layout.block_tokens = 1;
    CheckAllRanks(layout);
    if (HasFatalFailure()) return;
  }
}

// With two stages and more, some have states alone, whose blocks differ from those of other stages.
TEST(PlannerTest, TilesEveryByteOfAState) {
  KvLayout one_plane = HybridLayout(6, 4, 5, 2);
  one_plane.groups.back().planes.resize(1);
  KvLayout states_first = HybridLayout(6, 4, 3, 4);
  states_first.groups[0].layers = {4, 5};
  states_first.groups[1].layers = {0, 1, 2, 3};
  for (const KvLayout& layout :
       {HybridLayout(6, 4, 5, 2), HybridLayout(6, 2, 7, 4), one_plane, states_first}) {
    SCOPED_TRACE(layout.ToString());
    ASSERT_TRUE(layout.Validate().ok()) << layout.Validate();
    for (const int32_t p_tp : {1, 2, 4}) {
      for (const int32_t d_tp : {1, 2, 4}) {
        for (const int32_t p_pp : {1, 2, 3}) {
          for (const int32_t d_pp : {1, 2, 3}) {
            CheckState(layout, {p_tp, d_tp, p_pp, d_pp});
            CheckTiling(layout, {p_tp, d_tp, p_pp, d_pp});
            if (HasFatalFailure()) return;
          }
        }
      }
    }
  }
}

// One layer of a large state is more than a staging buffer of a transport.
TEST(PlannerTest, LargeStatesAreSpreadOverLinks) {
  KvLayout layout = HybridLayout(8, 8, 16, 16);
  std::vector<KvPlane>& planes = layout.groups.back().planes;
  for (const auto& [dim, links_expected] : {std::pair{1 << 10, 2}, {1 << 16, 12}, {1 << 20, 48}}) {
    planes[1].dim = dim;
    const std::vector<KvShard> whole = {WholeModel(layout)};
    const auto links = PlanLinks(layout, whole, whole);
    ASSERT_TRUE(links.ok()) << links.status();
    size_t bytes = 0;
    int count = 0;
    for (const KvLink& link : *links) {
      if (!layout.groups[link.cache_group].state) continue;
      ++count;
      bytes += LinkBlockBytes(layout, link);
      EXPECT_LE(
          LinkBlockBytes(layout, link),
          std::max(kMaxStateLinkBytes,
                   planes[1].head_bytes(1) + planes[0].head_bytes(1) + planes[2].head_bytes(1)));
    }
    EXPECT_EQ(bytes, ShardStateBytes(layout, whole[0])) << dim;
    EXPECT_EQ(count, links_expected) << dim;
  }
}

TEST(PlannerTest, LayerGroupsCutLinksAtTheStatedLayers) {
  KvLayout layout = DenseLayout({.layers = 7, .kv_heads = 8, .head_dim = 64});
  layout.layer_group_ends = {2, 3, 7};
  const auto links = PlanLinks(layout, Ranks(7, 8, 2, 1), Ranks(7, 8, 1, 1));
  ASSERT_TRUE(links.ok()) << links.status();
  std::vector<std::string> cut;
  for (const KvLink& link : *links) {
    cut.push_back(fmt::format("{}: group {} layers {}+{}",
                              link.source,
                              link.layer_group,
                              link.part.first_layer,
                              link.part.layer_count));
  }
  EXPECT_EQ(cut,
            (std::vector<std::string>{
                "0: group 0 layers 0+2", "0: group 1 layers 2+1", "1: group 2 layers 3+4"}));
}

TEST(PlannerTest, NeighbouringBlocksAreOneRun) {
  const KvLayout layout =
      DenseLayout({.layers = 2, .kv_heads = 2, .head_dim = 4, .block_tokens = 2});
  const std::vector<KvShard> whole = {WholeModel(layout)};
  const auto links = PlanLinks(layout, whole, whole);
  ASSERT_TRUE(links.ok());
  const std::vector<BlockPair> pairs = {
      {BlockId(4), BlockId(1)}, {BlockId(5), BlockId(2)}, {BlockId(6), BlockId(9)}};
  const std::vector<WriteRun> runs = PlanRuns(layout, whole[0], whole[0], links->front(), pairs);
  const uint64_t block = ShardBlockBytes(layout, whole[0]);
  EXPECT_EQ(runs,
            (std::vector<WriteRun>{{4 * block, block, 2 * block}, {6 * block, 9 * block, block}}));
}

// The sources that the links of four ranks to four ranks use, in order.
std::vector<uint32_t> UsedSources(const KvLayout& layout) {
  const std::vector<KvShard> ranks = Ranks(4, layout.sharded_heads(), 1, 4);
  const auto links = PlanLinks(layout, ranks, ranks);
  EXPECT_TRUE(links.ok()) << links.status();
  std::vector<uint32_t> used;
  for (const KvLink& link : *links) {
    if (link.layer_group == 0) used.push_back(link.source);
  }
  std::sort(used.begin(), used.end());
  return used;
}

TEST(PlannerTest, CopiesAreReadFromSeveralHolders) {
  EXPECT_EQ(UsedSources(DenseLayout({.layers = 4, .kv_heads = 1, .head_dim = 8})),
            (std::vector<uint32_t>{0, 1, 2, 3}));
  EXPECT_EQ(UsedSources(LatentLayout(4, 8)), (std::vector<uint32_t>{0, 1, 2, 3}));
}

// Every rank holds the whole latent, so a receiving rank needs it of one sending rank.
TEST(PlannerTest, ALatentTravelsOnceToEachRank) {
  const KvLayout layout = DenseLayout({.layers = 4, .dtype = DType::kF16, .latent_width = 40});
  for (const auto& [from, to] : {std::pair{1, 4}, {2, 4}, {3, 2}, {4, 1}, {4, 4}}) {
    SCOPED_TRACE(fmt::format("{} to {}", from, to));
    const std::vector<KvShard> ranks = Ranks(4, 0, 1, to);
    const auto links = PlanLinks(layout, Ranks(4, 0, 1, from), ranks);
    ASSERT_TRUE(links.ok()) << links.status();
    for (uint32_t rank = 0; rank < ranks.size(); ++rank) {
      size_t moved = 0;
      std::set<uint32_t> sources;
      for (const KvLink& link : *links) {
        if (link.destination != rank) continue;
        moved += LinkBlockBytes(layout, link);
        sources.insert(link.source);
      }
      EXPECT_EQ(moved, size_t{4} * 16 * 40 * 2) << "rank " << rank;
      EXPECT_EQ(sources.size(), 1u) << "rank " << rank;
    }
  }
}

TEST(PlannerTest, RefusesShardsThatDoNotFill) {
  const auto refuses = [](const KvLayout& layout, const std::vector<KvShard>& sources) {
    const auto links = PlanLinks(layout, sources, std::vector<KvShard>{WholeModel(layout)});
    return links.status().code() == StatusCode::kInvalidArgument;
  };
  const KvLayout dense = DenseLayout({.layers = 4, .kv_heads = 4, .head_dim = 8});
  EXPECT_FALSE(refuses(dense, {{0, 4, 0, 2}, {0, 4, 2, 2}}));
  EXPECT_TRUE(refuses(dense, {{0, 4, 0, 2}, {0, 3, 2, 2}}));
  EXPECT_TRUE(refuses(dense, {{0, 4, 0, 3}, {0, 4, 2, 2}}));
  EXPECT_TRUE(refuses(dense, {}));
  const KvLayout latent = LatentLayout(4, 8);
  EXPECT_FALSE(refuses(latent, {{0, 4, 0, 0}, {0, 4, 0, 0}}));
  EXPECT_TRUE(refuses(latent, {{0, 3, 0, 0}}));
  EXPECT_TRUE(refuses(latent, {{0, 3, 0, 0}, {2, 2, 0, 0}}));
}

TEST(PlannerTest, BlockRangesAreSortedAndMerged) {
  const std::vector<BlockId> blocks = {BlockId(5), BlockId(1), BlockId(4), BlockId(9)};
  EXPECT_EQ(BlockRanges(10, blocks), (std::vector<ByteRange>{{10, 10}, {40, 20}, {90, 10}}));
}

}  // namespace
}  // namespace baton
