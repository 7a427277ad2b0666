#include <cstddef>
#include <cstdint>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/base/check.h"
#include "common/model/open_model.h"
#include "tests/unit/model/changed_gguf.h"
#include "tests/unit/model/tiny_gguf.h"

// Recurrent layers in GGUF files: what is read of the keys, and what is refused.
namespace baton {
namespace {

using testing::HasSubstr;

TEST(RecurrentGguf, BadOnesAreNamed) {
  const auto error = [](const std::string& file, const std::string& key, uint32_t value) {
    ChangedGguf changed(file);
    changed.Set(key, value);
    return changed.Error();
  };
  EXPECT_THAT(error("mamba2", "mamba2.ssm.group_count", 0), HasSubstr("ssm.group_count is 0; it"));
  EXPECT_THAT(error("mamba2", "mamba2.ssm.inner_size", 127),
              HasSubstr("ssm.inner_size 127 is not a multiple of ssm.time_step_rank 8"));
  EXPECT_THAT(error("mamba2", "mamba2.ssm.state_size", 8),
              HasSubstr("blk.0.ssm_in.weight has shape"));
  EXPECT_THAT(error("qwen3_next", "qwen3next.ssm.conv_kernel", 3),
              HasSubstr("blk.0.ssm_conv1d.weight has shape"));
  EXPECT_THAT(error("falcon_h1", "falcon-h1.ssm.time_step_rank", 0),
              HasSubstr("ssm.time_step_rank is 0; it must be between"));
  EXPECT_EQ(SpecWithout("qwen3_next", "qwen3next.attention.recurrent_layers").state_layers(), 3);
}

TEST(RecurrentGguf, ADecayThatIsNotNegativeIsNamed) {
  const auto model = OpenModel(TinyModelPath("gguf/mamba2.gguf"));
  ASSERT_TRUE(model.ok()) << Message(model.status());
  const auto exponents = model->weights->GetVector({WeightKind::kRecurrentDecay, 1}, 8);
  ASSERT_TRUE(exponents.ok()) << Message(exponents.status());
  ChangedGguf file("mamba2");
  file.Negate("blk.1.ssm_a");
  EXPECT_THAT(file.Error(), HasSubstr("tensor blk.1.ssm_a has"));
}

TEST(TiledHeadsGguf, EachValueHeadOfQwen35HasAKeyHead) {
  ChangedGguf file("qwen3_5_text");
  const auto recurrent = [&](uint32_t key_heads) {
    file.Set("qwen35.ssm.group_count", key_heads);
    const auto model = file.Open();
    BATON_CHECK(model.ok(), "{}", Message(model.status()));
    return model->spec.recurrent;
  };
  EXPECT_EQ(recurrent(2).shape.key_heads, 4);
  EXPECT_EQ(recurrent(2).tiled_keys, 2);
  EXPECT_EQ(recurrent(4).shape.key_heads, 4);
  EXPECT_EQ(recurrent(4).tiled_keys, 0);
  EXPECT_THAT(file.Error(),
              HasSubstr("blk.0.attn_qkv.weight has shape [128, 64]; expected [192, 64]"));
  file.Set("qwen35.ssm.group_count", 3);
  EXPECT_THAT(file.Error(),
              HasSubstr("ssm.time_step_rank 4 is not a multiple of ssm.group_count 3"));
}

TEST(ListedLayersGguf, BadListsAndSizesAreNamed) {
  const auto error = [](const std::string& file, const std::string& key, uint32_t value) {
    ChangedGguf changed(file);
    changed.Set(key, value);
    return changed.Error();
  };
  EXPECT_THAT(error("jamba", "jamba.block_count", 3), HasSubstr("has 4 entries for 3 layers"));
  EXPECT_THAT(error("jamba", "jamba.ssm.inner_size", 127),
              HasSubstr("ssm.inner_size 127 is not a multiple of attention.head_count_kv 2"));
  EXPECT_THAT(error("jamba", "jamba.ssm.state_size", 4), HasSubstr("blk.0.ssm_x.weight has shape"));
  EXPECT_THAT(error("jamba", "jamba.expert_count", 0), HasSubstr("expert_count is 0; it must be"));
  EXPECT_THAT(error("kimi_linear", "kimi-linear.kda.head_dim", 0),
              HasSubstr("kda.head_dim is 0; it must be between"));
  EXPECT_THAT(error("kimi_linear", "kimi-linear.ssm.conv_kernel", 3),
              HasSubstr("blk.0.ssm_conv1d_q.weight has shape [1, 64, 1, 4]"));
  EXPECT_THAT(error("kimi_linear", "kimi-linear.expert_gating_func", 1),
              HasSubstr("expert_gating_func is 1; it must be between 2 and 2"));
}

TEST(ListedLayersGguf, LayersWithOtherNumbersOfHeadsAreRefused) {
  const auto error = [](const std::string& key, size_t layer, uint32_t value) {
    ChangedGguf file("jamba");
    file.SetEntry(key, layer, value);
    return file.Error();
  };
  const std::string heads = "jamba.attention.head_count_kv";
  EXPECT_THAT(error(heads, 3, 4), HasSubstr("is 2 in one layer and 4 in another"));
  EXPECT_THAT(error(heads, 3, 5000), HasSubstr("head_count_kv has 5000; it must be between 0"));
  EXPECT_THAT(error(heads, 2, 0), HasSubstr("head_count_kv is 0 in all layers"));
  EXPECT_THAT(error(heads, 3, 2), HasSubstr("tensor blk.3.attn_q.weight is missing"));
}

TEST(NemotronGguf, ModelsWithoutExpertsHaveAnArchitectureOfTheirOwn) {
  ChangedGguf file("nemotron_h");
  file.SetArchitecture("nemotron_h_moe", "nemotron_h");
  file.Add("nemotron_h.nextn_predict_layers", 1);  // without the last layer, which has experts
  const auto model = file.Open();
  ASSERT_TRUE(model.ok()) << Message(model.status());
  EXPECT_EQ(model->spec.layer_count(), 4);
  EXPECT_EQ(model->spec.moe.experts, 0);
  EXPECT_EQ(model->spec.intermediate, 112);
  EXPECT_EQ(file.Error(), "no error");
}

TEST(NemotronGguf, ExpertsOfALatentAndOtherSizesAreRefused) {
  ChangedGguf latent("nemotron_h");
  latent.Add("nemotron_h_moe.moe_latent_size", 16);
  EXPECT_THAT(latent.Error(), HasSubstr("moe_latent_size is not 0; experts of a latent are not"));
  ChangedGguf sizes("nemotron_h");
  sizes.SetEntry("nemotron_h_moe.feed_forward_length", 2, 48);
  EXPECT_THAT(sizes.Error(),
              HasSubstr("feed_forward_length is 112 in one layer and 48 in another"));
}

}  // namespace
}  // namespace baton
