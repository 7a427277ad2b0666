#include "kvtransfer/planner.h"

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace baton {
namespace {

// The shards of `pp` × `tp` ranks: layers are divided into stages, heads among the ranks of a
// stage. With more ranks than heads, several ranks hold the same head.
std::vector<KvShard> Ranks(int32_t layers, int32_t heads, int32_t pp, int32_t tp) {
  std::vector<KvShard> shards;
  for (int32_t p = 0; p < pp; ++p) {
    for (int32_t t = 0; t < tp; ++t) {
      const int32_t first_layer = layers * p / pp;
      const int32_t first_head = tp <= heads ? heads * t / tp : t * heads / tp;
      const int32_t head_count = tp <= heads ? heads * (t + 1) / tp - first_head : 1;
      shards.push_back({first_layer, layers * (p + 1) / pp - first_layer, first_head, head_count});
    }
  }
  return shards;
}

// Labels every byte of an arena with its head (block, layer, part, head) and the offset in it, in
// the documented order of KvLayout. Bytes of unnamed blocks have empty labels.
std::vector<std::string> Meaning(const KvLayout& layout,
                                 const KvShard& shard,
                                 const std::map<uint32_t, uint32_t>& block_names,
                                 uint32_t block_count) {
  std::vector<std::string> bytes;
  for (uint32_t block = 0; block < block_count; ++block) {
    const auto name = block_names.find(block);
    for (int32_t l = 0; l < shard.layer_count; ++l) {
      for (int part = 0; part < 2; ++part) {
        for (int32_t h = 0; h < shard.head_count; ++h) {
          for (size_t i = 0; i < layout.head_bytes(); ++i) {
            bytes.push_back(name == block_names.end() ? ""
                                                      : fmt::format("{}.{}.{}.{}.{}",
                                                                    name->second,
                                                                    shard.first_layer + l,
                                                                    part,
                                                                    shard.first_head + h,
                                                                    i));
          }
        }
      }
    }
  }
  return bytes;
}

struct Case {
  int32_t heads;
  int32_t p_tp;
  int32_t d_tp;
  int32_t p_pp;
  int32_t d_pp;
};

void CheckTiling(const Case& c) {
  SCOPED_TRACE(
      fmt::format("heads {} P tp {} pp {} D tp {} pp {}", c.heads, c.p_tp, c.p_pp, c.d_tp, c.d_pp));
  const KvLayout layout{
      .layers = 4, .kv_heads = c.heads, .head_dim = 1, .block_tokens = 1, .dtype = DType::kF16};
  const std::vector<KvShard> sources = Ranks(4, c.heads, c.p_pp, c.p_tp);
  const std::vector<KvShard> destinations = Ranks(4, c.heads, c.d_pp, c.d_tp);
  const auto links = PlanLinks(sources, destinations);
  ASSERT_TRUE(links.ok()) << links.status();
  const std::vector<BlockPair> pairs = {
      {BlockId(2), BlockId(0)}, {BlockId(3), BlockId(1)}, {BlockId(0), BlockId(3)}};
  const std::map<uint32_t, uint32_t> source_names = {{2, 0}, {3, 1}, {0, 2}};
  const std::map<uint32_t, uint32_t> destination_names = {{0, 0}, {1, 1}, {3, 2}};
  std::vector<std::vector<std::string>> written;
  for (const KvShard& shard : destinations) {
    written.emplace_back(4 * ShardBlockBytes(layout, shard));
  }
  for (const KvLink& link : *links) {
    const std::vector<std::string> from = Meaning(layout, sources[link.source], source_names, 4);
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
    ASSERT_EQ(total, pairs.size() * LinkBlockBytes(layout, link));
  }
  for (size_t d = 0; d < destinations.size(); ++d) {
    ASSERT_EQ(written[d], Meaning(layout, destinations[d], destination_names, 4));
  }
}

TEST(PlannerTest, TilesEveryDestinationByteOnce) {
  for (const int32_t heads : {1, 2, 3, 4, 6}) {
    for (const int32_t p_tp : {1, 2, 3, 4}) {
      for (const int32_t d_tp : {1, 2, 3, 4}) {
        for (const int32_t p_pp : {1, 2, 4}) {
          for (const int32_t d_pp : {1, 2, 4}) {
            CheckTiling({heads, p_tp, d_tp, p_pp, d_pp});
            if (HasFatalFailure()) return;
          }
        }
      }
    }
  }
}

TEST(PlannerTest, LayerGroupsCutLinksWithoutGapOrOverlap) {
  const KvLayout layout{.layers = 7, .kv_heads = 8, .head_dim = 64, .dtype = DType::kF16};
  ASSERT_EQ(LayerGroups(layout), 3);
  for (const int32_t p_pp : {1, 2, 3}) {
    for (const int32_t d_pp : {1, 2, 7}) {
      const auto links = PlanLinks(Ranks(7, 8, p_pp, 2), Ranks(7, 8, d_pp, 4));
      ASSERT_TRUE(links.ok()) << links.status();
      const std::vector<KvLink> split = SplitByLayers(layout, *links);
      auto next = split.begin();
      for (const KvLink& link : *links) {
        int32_t layer = link.part.first_layer;
        while (layer < link.part.first_layer + link.part.layer_count) {
          ASSERT_NE(next, split.end());
          EXPECT_EQ(next->source, link.source);
          EXPECT_EQ(next->destination, link.destination);
          EXPECT_EQ(next->part.first_head, link.part.first_head);
          EXPECT_EQ(next->part.head_count, link.part.head_count);
          EXPECT_EQ(next->part.first_layer, layer);
          ASSERT_GT(next->part.layer_count, 0);
          layer += next->part.layer_count;
          const auto group = static_cast<int32_t>(next->group);
          EXPECT_LE(layer, LayerGroupEnd(layout, group));
          if (group > 0) {
            EXPECT_GE(next->part.first_layer, LayerGroupEnd(layout, group - 1));
          }
          ++next;
        }
        EXPECT_EQ(layer, link.part.first_layer + link.part.layer_count);
      }
      EXPECT_EQ(next, split.end());
    }
  }
}

TEST(PlannerTest, NeighbouringBlocksAreOneRun) {
  const KvLayout layout{.layers = 2, .kv_heads = 2, .head_dim = 4, .block_tokens = 2};
  const std::vector<KvShard> whole = {WholeModel(layout)};
  const auto links = PlanLinks(whole, whole);
  ASSERT_TRUE(links.ok());
  const std::vector<BlockPair> pairs = {
      {BlockId(4), BlockId(1)}, {BlockId(5), BlockId(2)}, {BlockId(6), BlockId(9)}};
  const std::vector<WriteRun> runs = PlanRuns(layout, whole[0], whole[0], links->front(), pairs);
  const uint64_t block = ShardBlockBytes(layout, whole[0]);
  EXPECT_EQ(runs,
            (std::vector<WriteRun>{{4 * block, block, 2 * block}, {6 * block, 9 * block, block}}));
}

TEST(PlannerTest, ReplicatedHeadsAreReadFromSeveralHolders) {
  const std::vector<KvShard> sources = Ranks(4, 1, 1, 4);
  const std::vector<KvShard> destinations = Ranks(4, 1, 1, 4);
  const auto links = PlanLinks(sources, destinations);
  ASSERT_TRUE(links.ok());
  std::vector<uint32_t> used;
  for (const KvLink& link : *links) used.push_back(link.source);
  std::sort(used.begin(), used.end());
  EXPECT_EQ(used, (std::vector<uint32_t>{0, 1, 2, 3}));
}

TEST(PlannerTest, RefusesShardsThatDoNotFill) {
  const std::vector<KvShard> whole = {{0, 4, 0, 4}};
  const std::vector<KvShard> gap = {{0, 4, 0, 2}, {0, 3, 2, 2}};
  EXPECT_EQ(PlanLinks(gap, whole).status().code(), StatusCode::kInvalidArgument);
  const std::vector<KvShard> partial_overlap = {{0, 4, 0, 3}, {0, 4, 2, 2}};
  EXPECT_EQ(PlanLinks(partial_overlap, whole).status().code(), StatusCode::kInvalidArgument);
  EXPECT_FALSE(PlanLinks({}, whole).ok());
}

TEST(PlannerTest, BlockRangesAreSortedAndMerged) {
  const std::vector<BlockId> blocks = {BlockId(5), BlockId(1), BlockId(4), BlockId(9)};
  EXPECT_EQ(BlockRanges(10, blocks), (std::vector<ByteRange>{{10, 10}, {40, 20}, {90, 10}}));
}

}  // namespace
}  // namespace baton
