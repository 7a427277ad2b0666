#include "common/kvcache/layout.h"

#include <algorithm>
#include <functional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/conformance/layout_order.h"

namespace baton {
namespace {

using testing::HasSubstr;

KvLayout Layout() {
  return DenseLayout(
      {.layers = 3, .kv_heads = 4, .head_dim = 8, .block_tokens = 16, .dtype = DType::kF16});
}

// What Validate says of Layout() after a change.
std::string Problem(const std::function<void(KvLayout&)>& change) {
  KvLayout layout = Layout();
  change(layout);
  return std::string(Message(layout.Validate()));
}

TEST(KvLayoutTest, BlocksLieOneAfterAnother) {
  const KvLayout layout = Layout();
  EXPECT_TRUE(layout.Validate().ok()) << layout.Validate();
  constexpr int64_t kHeadBytes = 256;              // 16 tokens of 8 elements of 2 bytes
  constexpr int64_t kLayerBytes = 8 * kHeadBytes;  // K and V of 4 heads
  EXPECT_EQ(ShardBlockBytes(layout, WholeModel(layout)), 3u * kLayerBytes);
  const KvView view =
      MakeView(layout, WholeModel(layout), PlacesOf(layout, WholeModel(layout)), nullptr, 5);
  EXPECT_EQ(view.block_stride, static_cast<int64_t>(ShardBlockBytes(layout, WholeModel(layout))));
  int64_t expected = 0;
  for (int32_t block = 0; block < 5; ++block) {
    for (int32_t layer = 0; layer < 3; ++layer) {
      for (int32_t head = 0; head < 4; ++head) {
        EXPECT_EQ(view.Key(block, layer, head) - view.base, expected + head * kHeadBytes);
        EXPECT_EQ(view.Value(block, layer, head) - view.base, expected + (4 + head) * kHeadBytes);
      }
      expected += kLayerBytes;
    }
  }
}

TEST(KvLayoutTest, ShardTakesItsPart) {
  const KvShard shard = {.first_layer = 1, .layer_count = 2, .first_head = 2, .head_count = 2};
  EXPECT_TRUE(ValidateShard(Layout(), shard).ok());
  EXPECT_EQ(ShardBlockBytes(Layout(), shard), 2u * 2 * 2 * 16 * 8 * 2);
}

TEST(KvLayoutTest, ReplicatedPlanesAreWholeOnEveryRank) {
  const KvLayout latent = LatentLayout(4, 576);
  EXPECT_TRUE(latent.Validate().ok()) << latent.Validate();
  EXPECT_EQ(latent.sharded_heads(), 0);
  EXPECT_EQ(ShardBlockBytes(latent, WholeModel(latent)), 4u * 16 * 576 * 2);
  EXPECT_TRUE(ValidateShard(latent, {1, 2, 0, 0}).ok());
  EXPECT_FALSE(ValidateShard(latent, {1, 2, 0, 1}).ok());
  const KvLayout mixed = MixedLayout(4, 6, 8);
  EXPECT_TRUE(mixed.Validate().ok()) << mixed.Validate();
  EXPECT_FALSE(ValidateShard(mixed, {0, 4, 0, 0}).ok());
  // Layers 0 and 2: two heads of K and V, and the shared plane.
  EXPECT_EQ(ShardBlockBytes(mixed, {0, 4, 2, 2}), 2u * (2 + 2 + 1) * 16 * 8 * 2);
}

TEST(KvLayoutTest, ALatentIsOnePlaneForKeysAndValues) {
  DenseKv kv = {.layers = 3, .kv_heads = 4, .head_dim = 8, .dtype = DType::kF16};
  kv.k_dim_major = true;
  kv.latent_width = 40;
  const KvLayout layout = DenseLayout(kv);
  EXPECT_TRUE(layout.Validate().ok()) << layout.Validate();
  EXPECT_THAT(layout.ToString(), HasSubstr("3 layers of latent 1 × 40 f16 on every rank;"));
  constexpr int64_t kLayerBytes = 1280;  // 16 tokens of 40 elements of 2 bytes
  const KvShard rank = {.first_layer = 1, .layer_count = 2};
  EXPECT_EQ(ShardBlockBytes(layout, rank), 2u * kLayerBytes);
  const KvView view = MakeView(layout, rank, PlacesOf(layout, rank), nullptr, 5);
  EXPECT_TRUE(view.one_plane() && !view.k_dim_major);
  EXPECT_EQ(view.kv_heads, 1);
  EXPECT_EQ(view.head_dim, 40);
  EXPECT_EQ(view.Key(3, 1, 0) - view.base, 7 * kLayerBytes);
  EXPECT_EQ(view.Value(3, 1, 0), view.Key(3, 1, 0));
}

TEST(KvLayoutTest, IndexKeysLieBehindTheLatentsOfTheirLayer) {
  DenseKv kv = {.layers = 3, .dtype = DType::kF16};
  kv.latent_width = 40;
  kv.index_width = 24;
  const KvLayout layout = DenseLayout(kv);
  EXPECT_TRUE(layout.Validate().ok()) << layout.Validate();
  EXPECT_THAT(layout.ToString(),
              HasSubstr("latent 1 × 40 f16 on every rank, index 1 × 24 f16 on every rank;"));
  constexpr int64_t kLatentBytes = 1280;               // 16 tokens of 40 elements of 2 bytes
  constexpr int64_t kLayerBytes = kLatentBytes + 768;  // and of 24
  const KvShard rank = {.first_layer = 1, .layer_count = 2};
  EXPECT_EQ(ShardBlockBytes(layout, rank), 2u * kLayerBytes);
  const KvView view = MakeView(layout, rank, PlacesOf(layout, rank), nullptr, 5);
  EXPECT_TRUE(view.one_plane());
  EXPECT_EQ(view.index_dim, 24);
  EXPECT_EQ(view.Key(3, 1, 0) - view.base, 7 * kLayerBytes);
  EXPECT_EQ(view.IndexKey(3, 1) - view.Key(3, 1, 0), kLatentBytes);
}

TEST(KvWindowTest, AChunkBeginsAtAMultipleOfItsSize) {
  constexpr KvWindow kChunk = KvWindow::OfChunks(20);
  for (int64_t next = 0; next < 100; ++next) {
    EXPECT_EQ(kChunk.FirstRead(next), next / 20 * 20) << next;
    EXPECT_EQ(KvWindow(20).FirstRead(next), std::max<int64_t>(0, next - 19)) << next;
    EXPECT_EQ(KvWindow().FirstRead(next), 0) << next;
  }
  // Blocks of 8 tokens: token 39 reads from token 20 on, token 40 itself alone.
  EXPECT_EQ(FirstBlockRead(39, kChunk, 8), 2);
  EXPECT_EQ(FirstBlockRead(40, kChunk, 8), 5);
  EXPECT_EQ(FirstBlockKept(39, kChunk, 8), 2);
  EXPECT_EQ(FirstBlockKept(40, kChunk, 8), 4) << "a sequence keeps its last block";
}

TEST(KvLayoutTest, ChunksAreAGroupBesideWindowsOfTheSameSize) {
  const KvLayout layout = DenseLayout(
      {.layers = 3, .kv_heads = 2, .head_dim = 8, .windows = {KvWindow::OfChunks(32), 0, 32}});
  ASSERT_TRUE(layout.Validate().ok()) << layout.Validate();
  ASSERT_EQ(layout.groups.size(), 3u);
  EXPECT_EQ(layout.windows(), (std::vector<KvWindow>{0, 32, KvWindow::OfChunks(32)}));
  EXPECT_EQ(layout.groups[2].attention_chunk, 32);
  EXPECT_EQ(layout.groups[2].sliding_window, 0);
  EXPECT_EQ(layout.window_beside_all(), KvWindow::OfChunks(32));
  EXPECT_THAT(layout.ToString(), HasSubstr("f32, chunks of 32; 16 tokens a block"));
}

TEST(KvLayoutTest, ScalesLieBesideTheirNumbers) {
  const KvLayout fp8 = ScaledFp8Layout(4, 2, 64);
  EXPECT_TRUE(fp8.Validate().ok()) << fp8.Validate();
  EXPECT_EQ(ShardBlockBytes(fp8, WholeModel(fp8)), 4u * 2 * 2 * 16 * (64 + 4));
}

// The largest cache group determines the size of all blocks.
TEST(KvLayoutTest, ABlockServesAnyCacheGroup) {
  KvLayout mixed = MixedLayout(5, 2, 8);
  for (size_t group = 0; group < 2; ++group) {
    for (const HeadInBlock& head : HeadsInBlock(mixed, group, WholeModel(mixed))) {
      EXPECT_LE(head.offset + head.bytes, ShardBlockBytes(mixed, WholeModel(mixed)));
    }
  }
  EXPECT_EQ(LayersBefore(mixed.groups[0], 3), 1);
  EXPECT_EQ(LayersBefore(mixed.groups[1], 3), 2);
  EXPECT_EQ(LayersBefore(mixed.groups[1], 5), 3);
}

// By layer: `window`, but in every layer number `period` 0.
std::vector<KvWindow> Windows(int32_t layers, int32_t window, int32_t period) {
  std::vector<KvWindow> windows(layers, window);
  for (int32_t layer = period - 1; layer < layers; layer += period) windows[layer] = 0;
  return windows;
}

TEST(KvLayoutTest, LayersOfEachWindowHaveBlocksOfTheirOwn) {
  const KvLayout layout =
      DenseLayout({.layers = 24, .kv_heads = 8, .head_dim = 64, .windows = Windows(24, 128, 2)});
  ASSERT_TRUE(layout.Validate().ok()) << layout.Validate();
  ASSERT_EQ(layout.groups.size(), 2u);
  EXPECT_EQ(layout.groups[0].sliding_window, 0);
  EXPECT_EQ(layout.groups[1].sliding_window, 128);
  EXPECT_EQ(layout.groups[0].layers.front(), 1);
  EXPECT_EQ(layout.groups[1].layers.front(), 0);
  EXPECT_EQ(ShardBlockBytes(layout, WholeModel(layout)), 12u * 2 * 8 * 64 * 16 * 4);
}

// Shapes of published models: their layers, and how often one reads all tokens.
TEST(KvLayoutTest, FewBytesOfBlocksStayEmpty) {
  for (const auto& [layers, period] : std::vector<std::pair<int32_t, int32_t>>{
           {24, 2}, {36, 2}, {26, 6}, {34, 6}, {62, 6}, {32, 4}, {64, 4}, {48, 2}, {18, 6}}) {
    SCOPED_TRACE(layers);
    const KvLayout layout = DenseLayout({.layers = layers,
                                         .kv_heads = 4,
                                         .head_dim = 128,
                                         .windows = Windows(layers, 1024, period)});
    ASSERT_TRUE(layout.Validate().ok()) << layout.Validate();
    const KvShard whole = WholeModel(layout);
    const size_t layer = size_t{2} * 4 * 128 * 16 * 4;
    for (const int32_t window : {0, 1024}) {
      size_t blocks = 0;
      size_t used = 0;
      for (const KvCacheGroup& group : layout.groups) {
        if (group.sliding_window != window) continue;
        blocks += ShardBlockBytes(layout, whole);
        used += group.layers.size() * layer;
      }
      EXPECT_LE(static_cast<double>(blocks - used), 0.02 * static_cast<double>(blocks)) << window;
    }
  }
}

TEST(KvLayoutTest, APipelineStageFillsEqualPartsOfAllBlocks) {
  const KvLayout layout =
      DenseLayout({.layers = 48, .kv_heads = 1, .head_dim = 8, .windows = Windows(48, 64, 6)});
  EXPECT_EQ(layout.groups.size(), 6u);
  const KvShard stage = {.first_layer = 24, .layer_count = 24, .first_head = 0, .head_count = 1};
  EXPECT_EQ(2 * ShardBlockBytes(layout, stage), ShardBlockBytes(layout, WholeModel(layout)));
  const std::vector<KvLayerPlace> places = PlacesOf(layout, stage);
  const KvView view = MakeView(layout, stage, places, nullptr, 3);
  EXPECT_EQ(view.groups, 6);
  std::set<std::pair<int32_t, const std::byte*>> begins;
  for (int32_t layer = 0; layer < 24; ++layer) {
    const int32_t group = view.PlaceOf(layer).group;
    const std::vector<int32_t>& layers = layout.groups[group].layers;
    EXPECT_TRUE(std::ranges::binary_search(layers, layer + 24));
    const std::byte* key = view.Key(1, layer, 0);
    EXPECT_TRUE(begins.insert({group, key}).second) << "two layers in one place";
    EXPECT_GE(key - view.base, view.block_stride);
    EXPECT_LE(key + view.layer_stride - view.base, 2 * view.block_stride);
  }
}

// 4 layers, the last one with KV of 2 heads; the others have a state of 2 heads of 96 elements.
DenseKv Hybrid() {
  DenseKv kv = {.layers = 4, .kv_heads = 2, .head_dim = 8, .block_tokens = 4};
  kv.state.layers = {0, 1, 2};
  kv.state.planes = {{.name = "state", .heads = 2, .dim = 64},
                     {.name = "conv", .heads = 2, .dim = 32}};
  return kv;
}

TEST(KvLayoutTest, AStateTakesSeveralBlocks) {
  const KvLayout layout = DenseLayout(Hybrid());
  ASSERT_TRUE(layout.Validate().ok()) << layout.Validate();
  EXPECT_TRUE(layout.has_state());
  EXPECT_EQ(layout.block_groups(), 1);
  EXPECT_EQ(layout.windows(), (std::vector<KvWindow>{0, kStateWindow}));
  EXPECT_THAT(layout.ToString(),
              HasSubstr("layers 0-2 of states of state 2 × 64 f32, conv 2 × 32 f32;"));
  const KvShard whole = WholeModel(layout);
  EXPECT_EQ(ShardBlockBytes(layout, whole), 512u);  // K and V of 4 tokens in one layer
  EXPECT_EQ(ShardStateBytes(layout, whole), 3u * 2 * 96 * 4);
  EXPECT_EQ(StateBlocks(layout, std::vector{whole}), 5);  // 4.5
  const std::vector<KvLayerPlace> places = PlacesOf(layout, whole);
  const KvView view = MakeView(layout, whole, places, nullptr, 9);
  EXPECT_EQ(view.groups, 1);
  EXPECT_EQ(view.state.block_bytes, 512);
  EXPECT_EQ(view.state.layer_bytes, 2 * 96 * 4);
  EXPECT_EQ(view.PlaceOf(1).group, 1);
  EXPECT_EQ(view.PlaceOf(1).index, 1);
  EXPECT_EQ(view.PlaceOf(3).group, 0);
  EXPECT_EQ(view.PlaceOf(3).index, 0);
}

// A block has one number on all ranks, so all ranks count as many blocks as the one that needs
// most.
TEST(KvLayoutTest, RanksAgreeOnTheBlocksOfAState) {
  const KvLayout layout = DenseLayout(Hybrid());
  const std::vector<KvShard> heads = {{0, 4, 0, 1}, {0, 4, 1, 1}};
  EXPECT_EQ(ShardBlockBytes(layout, heads[0]), 256u);
  EXPECT_EQ(StateBlocks(layout, heads), 5);
  // The first stage has states alone. Its blocks divide them as those of the whole model do.
  const std::vector<KvShard> stages = {{0, 2, 0, 2}, {2, 2, 0, 2}};
  EXPECT_EQ(ShardBlockBytes(layout, stages[0]), 320u);  // a fifth of 1,536 bytes, in parts of 16
  EXPECT_EQ(StateBlocks(layout, stages), 5);
  EXPECT_EQ(StateBlocks(layout, std::vector{stages[1]}), 2);
}

// The shape of Qwen3.5-35B-A3B and Qwen3-Next-80B-A3B: every fourth layer has KV, the others states
// of 16 key heads and 32 value heads of 128 x 128. Their last block is the only one that is not
// full.
TEST(KvLayoutTest, LittleOfTheBlocksOfAStateStaysEmpty) {
  for (const int32_t layers : {40, 48}) {
    DenseKv kv = {.layers = layers, .kv_heads = 2, .head_dim = 256, .dtype = DType::kBF16};
    for (int32_t layer = 0; layer < layers; ++layer) {
      if (layer % 4 != 3) kv.state.layers.push_back(layer);
    }
    kv.state.planes = {{.name = "state", .heads = 2, .dim = 16 * 128 * 128},
                       {.name = "conv", .heads = 2, .dim = 4 * (8 + 8 + 16) * 128}};
    const KvLayout layout = DenseLayout(kv);
    ASSERT_TRUE(layout.Validate().ok()) << layout.Validate();
    const KvShard whole = WholeModel(layout);
    const auto blocks = static_cast<size_t>(StateBlocks(layout, std::vector{whole}));
    const size_t bytes = blocks * ShardBlockBytes(layout, whole);
    EXPECT_LT(bytes - ShardStateBytes(layout, whole), bytes / 100);
    EXPECT_LE(static_cast<int32_t>(blocks), MaxStateBlocks(layout));
  }
}

// The blocks of tokens hold nothing, but stand for the tokens.
TEST(KvLayoutTest, StatesAloneHaveSmallBlocks) {
  DenseKv kv = Hybrid();
  kv.state.layers = {0, 1, 2, 3};
  const KvLayout layout = DenseLayout(kv);
  ASSERT_TRUE(layout.Validate().ok()) << layout.Validate();
  EXPECT_EQ(layout.block_groups(), 1);
  EXPECT_TRUE(layout.groups[0].layers.empty());
  const KvShard whole = WholeModel(layout);
  const size_t block = ShardBlockBytes(layout, whole);
  EXPECT_LE(block, size_t{16} << 10);
  const auto blocks = static_cast<size_t>(StateBlocks(layout, std::vector{whole}));
  EXPECT_LT(blocks * block - ShardStateBytes(layout, whole), block);
}

TEST(KvLayoutTest, StatesAreTheLastGroupAndBesideNoWindow) {
  KvLayout layout = DenseLayout(Hybrid());
  std::swap(layout.groups[0], layout.groups[1]);
  EXPECT_THAT(Message(layout.Validate()), HasSubstr("only the last one may"));
  DenseKv kv = Hybrid();
  kv.windows = {0, 0, 0, 64};
  EXPECT_THAT(Message(DenseLayout(kv).Validate()),
              HasSubstr("sliding window or chunks of 64 tokens"));
  kv.windows = {0, 0, 0, KvWindow::OfChunks(64)};
  EXPECT_THAT(Message(DenseLayout(kv).Validate()), HasSubstr("sliding window or chunks of 64"));
}

TEST(KvLayoutTest, ErrorsNameTheField) {
  EXPECT_THAT(Problem([](KvLayout& l) { l.block_tokens = 0; }), HasSubstr("block_tokens is 0"));
  EXPECT_THAT(Problem([](KvLayout& l) { l.groups.clear(); }), HasSubstr("number of cache groups"));
  EXPECT_THAT(Problem([](KvLayout& l) { l.groups[0].layers = {}; }), HasSubstr("layers is 0"));
  EXPECT_THAT(Problem([](KvLayout& l) {
                l.groups[0].layers = {0, 1, 1};
              }),
              HasSubstr("layer 1 occurs twice"));
  EXPECT_THAT(Problem([](KvLayout& l) {
                l.groups[0].layers = {0, 1, 3};
              }),
              HasSubstr("a layer is 3; it must be between 0 and 2"));
  EXPECT_THAT(Problem([](KvLayout& l) {
                l.groups[0].layers = {1, 0, 2};
              }),
              HasSubstr("do not ascend"));
  EXPECT_THAT(Problem([](KvLayout& l) { l.groups[0].sliding_window = -1; }),
              HasSubstr("sliding_window is -1"));
  EXPECT_THAT(Problem([](KvLayout& l) { l.groups[0].attention_chunk = -1; }),
              HasSubstr("attention_chunk is -1"));
  EXPECT_THAT(
      Problem([](KvLayout& l) { l.groups[0].sliding_window = l.groups[0].attention_chunk = 16; }),
      HasSubstr("has a sliding window of 16 tokens and chunks of 16"));
  EXPECT_THAT(Problem([](KvLayout& l) { l.groups[0].planes.clear(); }),
              HasSubstr("the number of planes is 0"));
  EXPECT_THAT(Problem([](KvLayout& l) { l.groups[0].planes[1].name.clear(); }),
              HasSubstr("name has 0 characters"));
  EXPECT_THAT(Problem([](KvLayout& l) { l.groups[0].planes[0].heads = 0; }),
              HasSubstr("heads of plane k is 0"));
  EXPECT_THAT(Problem([](KvLayout& l) { l.groups[0].planes[1].heads = 5; }),
              HasSubstr("plane v has 5 heads, another one 4"));
  EXPECT_THAT(Problem([](KvLayout& l) { l.groups[0].planes[1].dim = 5000; }),
              HasSubstr("dim of plane v is 5000"));
  EXPECT_THAT(Problem([](KvLayout& l) { l.groups[0].planes[0].dtype = DType::kQ4_0; }),
              HasSubstr("dtype of plane k is q4_0"));
  for (const std::vector<int32_t>& ends :
       {std::vector<int32_t>{}, {0, 3}, {1, 1, 3}, {2}, {1, 4}, {2, 1, 3}}) {
    EXPECT_THAT(Problem([&](KvLayout& l) { l.layer_group_ends = ends; }),
                HasSubstr("ends of the layer groups"));
  }
}

TEST(KvLayoutTest, ShardsMustFit) {
  EXPECT_FALSE(ValidateShard(Layout(), {0, 4, 0, 1}).ok());
  EXPECT_FALSE(ValidateShard(Layout(), {0, 1, 4, 1}).ok());
  EXPECT_FALSE(ValidateShard(Layout(), {0, 1, 0, 0}).ok());
  EXPECT_FALSE(ValidateShard(Layout(), {2, 2147483647, 0, 1}).ok());
  EXPECT_FALSE(ValidateShard(Layout(), {-1, 1, 0, 1}).ok());
}

TEST(KvLayoutTest, LayerGroupsTileTheLayers) {
  const auto ends = [](const DenseKv& kv) { return DenseLayout(kv).layer_group_ends; };
  // 360 KiB per block: groups of at least 64 KiB.
  EXPECT_EQ(ends({.layers = 30, .kv_heads = 3, .head_dim = 64, .dtype = DType::kF16}),
            (std::vector<int32_t>{8, 16, 24, 30}));
  // About 2 MiB per block, and a number of layers that the groups do not divide evenly.
  EXPECT_EQ(ends({.layers = 33, .kv_heads = 8, .head_dim = 128, .dtype = DType::kBF16}),
            (std::vector<int32_t>{9, 19, 29, 33}));
  // Every group has at least one layer.
  EXPECT_EQ(ends({.layers = 2, .kv_heads = 64, .head_dim = 256, .dtype = DType::kF32}),
            (std::vector<int32_t>{1, 2}));
  EXPECT_EQ(Layout().layer_group_ends, (std::vector<int32_t>{3}));
  for (int32_t layers = 1; layers <= 100; ++layers) {
    for (int32_t heads = 1; heads <= 64; ++heads) {
      const KvLayout layout = DenseLayout({.layers = layers, .kv_heads = heads, .head_dim = 64});
      ASSERT_TRUE(layout.Validate().ok()) << layout.Validate();
    }
  }
}

TEST(KvLayoutTest, PrintsItself) {
  EXPECT_EQ(Layout().ToString(),
            "3 layers of k 4 × 8 f16, v 4 × 8 f16; 16 tokens a block; sent after layers 3");
  EXPECT_EQ(LatentLayout(4, 576).ToString(),
            "4 layers of latent 1 × 576 bf16 on every rank; 16 tokens a block; sent after layers "
            "3, 4");
  EXPECT_EQ(MixedLayout(4, 2, 8).ToString(),
            "layers 1,3 of k 2 × 8 f16, v 2 × 8 f16; layers 0,2 of k 2 × 8 f16, v 2 × 8 f16, "
            "shared 1 × 8 f16 on every rank, sliding window 64; 16 tokens a block; sent after "
            "layers 1, 3, 4");
  KvLayout transposed = Layout();
  transposed.groups[0].planes[0].order = KvOrder::kDimMajor;
  EXPECT_THAT(transposed.ToString(), HasSubstr("k 4 × 8 f16 by dimension"));
}

}  // namespace
}  // namespace baton
