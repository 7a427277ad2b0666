#include "common/model/dense_kv.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/model/hf_family_fixture.h"

namespace baton {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::IsEmpty;

class DenseKvTest : public HfFamilyTest {};

TEST_F(DenseKvTest, IsTheModelsShapeInTheBackendsOrder) {
  const ModelSpec spec = Good(Tiny("stablelm"));
  const DenseKv kv = DenseKvOf(spec, {.k_dim_major = true});
  EXPECT_EQ(kv.layers, spec.layer_count());
  EXPECT_EQ(kv.kv_heads, spec.kv_heads);
  EXPECT_EQ(kv.head_dim, spec.head_dim);
  EXPECT_TRUE(kv.k_dim_major);
  EXPECT_EQ(kv.latent_width, 0);
  EXPECT_THAT(kv.windows, Each(0));
  EXPECT_THAT(kv.state.layers, IsEmpty());
  EXPECT_FALSE(DenseKvOf(spec, {}).k_dim_major);
}

TEST_F(DenseKvTest, OnlyCacheGroupsGiveEachLayerItsWindow) {
  const ModelSpec mixed = Good(Tiny("gpt_oss"));
  const int32_t window = mixed.layers[0].window;
  ASSERT_GT(window, 0);
  EXPECT_THAT(DenseKvOf(mixed, {.cache_groups = true}).windows, ElementsAre(window, 0, window, 0));
  EXPECT_THAT(DenseKvOf(mixed, {}).windows, Each(0)) << "some layers read all tokens";
  ModelSpec windows = mixed;
  for (size_t i = 0; i < windows.layers.size(); ++i) windows.layers[i].window = i % 2 == 0 ? 5 : 9;
  EXPECT_THAT(DenseKvOf(windows, {}).windows, Each(9)) << "the largest one that a layer needs";
  EXPECT_THAT(DenseKvOf(windows, {.cache_groups = true}).windows, ElementsAre(5, 9, 5, 9));
}

TEST_F(DenseKvTest, HasLatentsAndStates) {
  const ModelSpec latent = Good(Tiny("deepseek_v3"));
  EXPECT_EQ(DenseKvOf(latent, {}).latent_width, latent.latent.rank + latent.latent.rope_dim);
  const DenseKv hybrid = DenseKvOf(Good(Tiny("qwen3_next")), {.states = true});
  EXPECT_THAT(hybrid.state.layers, ElementsAre(0, 1, 2));
  EXPECT_EQ(hybrid.state.planes.size(), 2u);
}

}  // namespace
}  // namespace baton
