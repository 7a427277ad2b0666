#include "common/kvcache/layout.h"

#include <gtest/gtest.h>

namespace baton {
namespace {

KvLayout Layout() {
  return {.layers = 3, .kv_heads = 4, .head_dim = 8, .block_tokens = 16, .dtype = DType::kF16};
}

TEST(KvLayoutTest, BlocksLieOneAfterAnother) {
  const KvLayout layout = Layout();
  EXPECT_EQ(layout.head_bytes(), 16u * 8 * 2);
  EXPECT_EQ(ShardBlockBytes(layout, WholeModel(layout)), 3u * 2 * 4 * 16 * 8 * 2);
  const KvView view = MakeView(layout, WholeModel(layout), nullptr, 5);
  EXPECT_EQ(view.block_stride, static_cast<int64_t>(ShardBlockBytes(layout, WholeModel(layout))));
  int64_t expected = 0;
  for (int32_t block = 0; block < 5; ++block) {
    for (int32_t layer = 0; layer < 3; ++layer) {
      for (int part = 0; part < 2; ++part) {
        for (int32_t head = 0; head < 4; ++head) {
          EXPECT_EQ(view.Head(block, layer, part, head) - view.base, expected);
          expected += static_cast<int64_t>(layout.head_bytes());
        }
      }
    }
  }
}

TEST(KvLayoutTest, ShardTakesItsPart) {
  const KvShard shard = {.first_layer = 1, .layer_count = 2, .first_head = 2, .head_count = 2};
  EXPECT_TRUE(ValidateShard(Layout(), shard).ok());
  EXPECT_EQ(ShardBlockBytes(Layout(), shard), 2u * 2 * 2 * 16 * 8 * 2);
}

TEST(KvLayoutTest, ErrorsNameTheField) {
  KvLayout layout = Layout();
  layout.kv_heads = 0;
  EXPECT_NE(Message(layout.Validate()).find("kv_heads is 0"), std::string_view::npos);
  layout = Layout();
  layout.dtype = DType::kQ4_0;
  EXPECT_NE(Message(layout.Validate()).find("q4_0"), std::string_view::npos);
  EXPECT_FALSE(ValidateShard(Layout(), {0, 4, 0, 1}).ok());
  EXPECT_FALSE(ValidateShard(Layout(), {0, 1, 4, 1}).ok());
  EXPECT_FALSE(ValidateShard(Layout(), {2, 2147483647, 0, 1}).ok());
  EXPECT_FALSE(ValidateShard(Layout(), {-1, 1, 0, 1}).ok());
}

TEST(KvLayoutTest, LayerGroupsTileTheLayers) {
  const auto ends = [](const KvLayout& layout) {
    std::vector<int32_t> all;
    for (int32_t group = 0; group < LayerGroups(layout); ++group) {
      all.push_back(LayerGroupEnd(layout, group));
    }
    return all;
  };
  // 360 KiB per block: groups of at least 64 KiB.
  EXPECT_EQ(ends({.layers = 30, .kv_heads = 3, .head_dim = 64, .dtype = DType::kF16}),
            (std::vector<int32_t>{8, 16, 24, 30}));
  // About 2 MiB per block, and a number of layers that the groups do not divide evenly.
  EXPECT_EQ(ends({.layers = 33, .kv_heads = 8, .head_dim = 128, .dtype = DType::kBF16}),
            (std::vector<int32_t>{9, 19, 29, 33}));
  // Every group has at least one layer.
  EXPECT_EQ(ends({.layers = 2, .kv_heads = 64, .head_dim = 256, .dtype = DType::kF32}),
            (std::vector<int32_t>{1, 2}));
  EXPECT_EQ(ends(Layout()), (std::vector<int32_t>{3}));
  for (int32_t layers = 1; layers <= 100; ++layers) {
    for (int32_t heads = 1; heads <= 64; ++heads) {
      int32_t before = 0;
      for (const int32_t end : ends({.layers = layers, .kv_heads = heads, .head_dim = 64})) {
        EXPECT_GT(end, before) << layers << " layers, " << heads << " heads";
        before = end;
      }
      EXPECT_EQ(before, layers);
    }
  }
}

TEST(KvLayoutTest, PrintsItself) {
  EXPECT_EQ(Layout().ToString(), "3 layers × 4 kv heads × 8, f16, 16 tokens a block");
}

}  // namespace
}  // namespace baton
