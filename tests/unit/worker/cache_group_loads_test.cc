#include "common/worker/cache_group_loads.h"

#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace baton {
namespace {

using testing::ElementsAre;

// 6 layers with a window of 64 tokens and 2 without: four groups of two layers.
TEST(CacheGroupLoadsTest, GroupsThatKeepTheSameAreCountedTogether) {
  const KvLayout layout = DenseLayout({.layers = 8,
                                       .kv_heads = 2,
                                       .head_dim = 8,
                                       .block_tokens = 4,
                                       .windows = {64, 64, 64, 0, 64, 64, 64, 0}});
  ASSERT_EQ(layout.groups.size(), 4u);
  const uint64_t layer = 2 * 2 * 8 * 4 * sizeof(float);
  const std::vector<int32_t> held = {10, 3, 4, 5};
  EXPECT_THAT(
      CacheGroupLoads(layout, held),
      ElementsAre(
          CacheGroupLoad{.name = "full", .layers = 2, .bytes = 2 * layer, .blocks_held = 10},
          CacheGroupLoad{
              .name = "window of 64", .layers = 6, .bytes = 6 * layer, .blocks_held = 12}));
  EXPECT_THAT(CacheGroupLoads(layout, {})[1].blocks_held, 0) << "before the first step";
}

TEST(CacheGroupLoadsTest, LatentsAndStatesHaveTheirNames) {
  const KvLayout latent =
      DenseLayout({.layers = 2, .block_tokens = 4, .windows = {0, 32}, .latent_width = 40});
  const uint64_t bytes = 40 * 4 * sizeof(float);
  EXPECT_THAT(
      CacheGroupLoads(latent, {}),
      ElementsAre(CacheGroupLoad{.name = "latent", .layers = 1, .bytes = bytes},
                  CacheGroupLoad{.name = "latent, window of 32", .layers = 1, .bytes = bytes}));
  DenseKv kv = {.layers = 4, .kv_heads = 1, .head_dim = 8, .block_tokens = 4};
  kv.state = {.layers = {0, 1, 2}, .planes = {{.name = "state", .heads = 1, .dim = 100}}};
  const std::vector<int32_t> held = {2, 6};
  EXPECT_THAT(
      CacheGroupLoads(DenseLayout(kv), held),
      ElementsAre(
          CacheGroupLoad{.name = "full", .layers = 1, .bytes = 256, .blocks_held = 2},
          CacheGroupLoad{.name = "state", .layers = 3, .bytes = 3 * 100 * 4, .blocks_held = 6}));
}

}  // namespace
}  // namespace baton
