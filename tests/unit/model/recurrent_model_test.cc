#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/model/dummy_weights.h"
#include "tests/unit/model/recurrent_fixture.h"

// What holds for all models with recurrent layers. tiny_golden_test compares them with
// transformers.
namespace baton {
namespace {

using testing::HasSubstr;

struct RecurrentCase {
  const char* family;
  // One tensor of each kind that models without recurrent layers do not have.
  std::vector<std::string> tensors;

  friend void PrintTo(const RecurrentCase& tested, std::ostream* out) { *out << tested.family; }
};

const std::vector<RecurrentCase> kCases = {
    {"qwen3_next",
     {"model.layers.0.linear_attn.in_proj_qkvz.weight",
      "model.layers.1.linear_attn.in_proj_ba.weight",
      "model.layers.2.linear_attn.conv1d.weight",
      "model.layers.0.linear_attn.A_log",
      "model.layers.0.linear_attn.dt_bias",
      "model.layers.1.linear_attn.norm.weight",
      "model.layers.2.linear_attn.out_proj.weight",
      "model.layers.3.mlp.shared_expert_gate.weight",
      "model.layers.3.self_attn.q_proj.weight"}},
    {"nemotron_h",
     {"backbone.embeddings.weight",
      "backbone.norm_f.weight",
      "backbone.layers.0.mixer.in_proj.weight",
      "backbone.layers.2.mixer.conv1d.weight",
      "backbone.layers.0.mixer.conv1d.bias",
      "backbone.layers.2.mixer.A_log",
      "backbone.layers.0.mixer.D",
      "backbone.layers.2.mixer.dt_bias",
      "backbone.layers.0.mixer.norm.weight",
      "backbone.layers.2.mixer.out_proj.weight",
      "backbone.layers.0.norm.weight",
      "backbone.layers.1.norm.weight",
      "backbone.layers.1.mixer.up_proj.weight",
      "backbone.layers.3.mixer.k_proj.weight",
      "backbone.layers.4.norm.weight",
      "backbone.layers.4.mixer.gate.e_score_correction_bias",
      "backbone.layers.4.mixer.shared_experts.up_proj.weight"}},
    {"falcon_h1",
     {"model.layers.0.input_layernorm.weight",
      "model.layers.0.mamba.in_proj.weight",
      "model.layers.1.mamba.conv1d.weight",
      "model.layers.2.mamba.conv1d.bias",
      "model.layers.0.mamba.A_log",
      "model.layers.1.mamba.D",
      "model.layers.2.mamba.dt_bias",
      "model.layers.2.mamba.out_proj.weight",
      "model.layers.2.self_attn.v_proj.weight",
      "model.layers.0.pre_ff_layernorm.weight",
      "model.layers.1.feed_forward.gate_proj.weight",
      "model.final_layernorm.weight"}},
    {"mamba2",
     {"backbone.layers.0.mixer.in_proj.weight",
      "backbone.layers.3.mixer.conv1d.weight",
      "backbone.layers.1.mixer.norm.weight",
      "backbone.layers.3.mixer.out_proj.weight",
      "backbone.layers.2.norm.weight"}},
    {"jamba",
     {"model.layers.0.mamba.in_proj.weight",
      "model.layers.1.mamba.conv1d.weight",
      "model.layers.3.mamba.conv1d.bias",
      "model.layers.0.mamba.x_proj.weight",
      "model.layers.1.mamba.dt_proj.weight",
      "model.layers.3.mamba.dt_proj.bias",
      "model.layers.0.mamba.dt_layernorm.weight",
      "model.layers.1.mamba.b_layernorm.weight",
      "model.layers.3.mamba.c_layernorm.weight",
      "model.layers.0.mamba.A_log",
      "model.layers.1.mamba.D",
      "model.layers.3.mamba.out_proj.weight",
      "model.layers.1.feed_forward.router.weight",
      "model.layers.2.feed_forward.up_proj.weight"}},
    {"kimi_linear",
     {"model.layers.0.self_attn.q_proj.weight",
      "model.layers.1.self_attn.k_proj.weight",
      "model.layers.3.self_attn.v_proj.weight",
      "model.layers.0.self_attn.b_proj.weight",
      "model.layers.1.self_attn.f_a_proj.weight",
      "model.layers.3.self_attn.f_b_proj.weight",
      "model.layers.0.self_attn.g_a_proj.weight",
      "model.layers.1.self_attn.g_b_proj.weight",
      "model.layers.3.self_attn.q_conv1d.weight",
      "model.layers.0.self_attn.k_conv1d.weight",
      "model.layers.1.self_attn.v_conv1d.weight",
      "model.layers.3.self_attn.A_log",
      "model.layers.0.self_attn.dt_bias",
      "model.layers.1.self_attn.o_norm.weight",
      "model.layers.3.self_attn.o_proj.weight",
      "model.layers.2.self_attn.kv_b_proj.weight",
      "model.layers.2.block_sparse_moe.gate.e_score_correction_bias",
      "model.layers.3.block_sparse_moe.shared_experts.up_proj.weight"}}};

class RecurrentModel : public RecurrentModelTest,
                       public testing::WithParamInterface<RecurrentCase> {
 protected:
  RecurrentModel() : RecurrentModelTest(GetParam().family) {}
};

TEST_P(RecurrentModel, NamesATensorThatIsMissingOrHasAnotherShape) {
  const HeldTensors all = TensorsIn(Path());
  for (const std::string& tensor : GetParam().tensors) {
    SCOPED_TRACE(tensor);
    HeldTensors tensors = all;
    ASSERT_EQ(tensors.erase(tensor), 1u);
    const OpenedModel without = OpenWith(tensors);
    Status status = StepRunner::Create(without.spec, *without.weights).status();
    EXPECT_EQ(status.code(), StatusCode::kNotFound);
    EXPECT_THAT(Message(status), HasSubstr("tensor " + tensor + " is missing"));

    HeldTensor& other = tensors[tensor];
    other = all.at(tensor);
    int64_t& size = *std::ranges::find_if(other.shape, [](int64_t n) { return n > 1; });
    size /= 2;
    other.bytes.resize(other.bytes.size() / 2);
    const OpenedModel halved = OpenWith(tensors);
    status = StepRunner::Create(halved.spec, *halved.weights).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(Message(status), HasSubstr("tensor " + tensor + " has shape ["));
  }
}

// The bits of logits and states depend on no border of a chunk.
TEST_P(RecurrentModel, ChunksOfEverySizeHaveTheSameBits) {
  const OpenedModel model = Open();
  const auto runner = RunnerOf(model);
  const std::vector<TokenId> tokens = Tokens(37);
  const std::vector<Logits> whole = runner->RunAll(0, tokens, tokens.size());
  const std::vector<std::byte> state = runner->StateBytesOf(0);
  for (size_t rows = 1; rows < tokens.size(); ++rows) {
    runner->Reset();
    ASSERT_EQ(runner->RunAll(0, tokens, rows), whole) << "chunks of " << rows;
    ASSERT_EQ(runner->StateBytesOf(0), state) << "chunks of " << rows;
  }
}

// The last token once more, where it is in the states already: the same bits, and the same states.
TEST_P(RecurrentModel, ATokenThatIsInTheStateIsComputedOnceMore) {
  const OpenedModel model = Open();
  const auto runner = RunnerOf(model);
  const std::vector<TokenId> tokens = Tokens(23);
  for (const size_t context : {1, 2, 3, 4, 5, 16, 22}) {
    SCOPED_TRACE(context);
    runner->Reset();
    const std::vector<Logits> rows = runner->RunAll(0, std::span(tokens).first(context), context);
    const std::vector<std::byte> state = runner->StateBytesOf(0);
    const Chunk again = {.sequence = 0,
                         .tokens = std::span(tokens).subspan(context - 1, 1),
                         .want = WantLogits::kLast,
                         .in_state = true};
    EXPECT_EQ(runner->Step(again).front(), rows.back());
    EXPECT_EQ(runner->StateBytesOf(0), state);
    const Logits next = runner->Step({0, std::span(tokens).subspan(context, 1)}).front();
    runner->Reset();
    EXPECT_EQ(runner->RunAll(0, std::span(tokens).first(context + 1), 3).back(), next);
  }
}

// Rows of a sequence in one step as several sequences with the same blocks.
TEST_P(RecurrentModel, ASequenceMayReadTheStateThatAnEarlierOneOfTheStepWrites) {
  const OpenedModel model = Open();
  const auto runner = RunnerOf(model);
  const std::vector<TokenId> tokens = Tokens(9);
  const std::vector<Logits> want = runner->RunAll(0, tokens, tokens.size());
  const std::vector<std::byte> state = runner->StateBytesOf(0);
  runner->Reset();
  runner->RunAll(0, std::span(tokens).first(4), 4);
  std::vector<Chunk> chunks;
  for (size_t i = 4; i < tokens.size(); ++i) {
    chunks.push_back({0, std::span(tokens).subspan(i, 1), WantLogits::kLast});
    chunks.push_back({1, std::span(tokens).subspan(i - 4, 1), WantLogits::kLast});
  }
  const std::vector<Logits> got = runner->Step(chunks);
  for (size_t i = 4; i < tokens.size(); ++i) {
    EXPECT_EQ(got[2 * (i - 4)], want[i]) << i;
    EXPECT_EQ(got[2 * (i - 4) + 1], want[i - 4]) << i;
  }
  EXPECT_EQ(runner->StateBytesOf(0), state);
}

// Each tensor changes the logits.
TEST_P(RecurrentModel, EveryTensorCounts) {
  const HeldTensors all = TensorsIn(Path());
  const std::vector<TokenId> tokens = Tokens(8);
  const OpenedModel model = Open();
  const auto plain = RunnerOf(model)->RunAll(0, tokens, 8);
  for (const std::string& name : GetParam().tensors) {
    // A bias of a router selects experts, or not.
    if (name.ends_with("e_score_correction_bias") || name == "backbone.embeddings.weight") continue;
    HeldTensors changed = all;
    HeldTensor& tensor = changed.at(name);
    // The sign of the last number, which belongs to the last head; of q_proj of Qwen3-Next to its
    // gate.
    tensor.bytes.back() ^= std::byte{0x80};
    const OpenedModel other = OpenWith(changed);
    EXPECT_NE(RunnerOf(other)->RunAll(0, tokens, 8), plain) << name;
  }
}

TEST_P(RecurrentModel, RandomWeightsGiveNumbers) {
  const ModelSpec spec = Good(Tiny(GetParam().family));
  const auto runner = StepRunner::Create(spec, DummyWeights(1));
  ASSERT_TRUE(runner.ok()) << Message(runner.status());
  const auto logits = (*runner)->RunAll(0, Tokens(5), 5);
  for (const float logit : logits.back()) ASSERT_TRUE(std::isfinite(logit));
}

INSTANTIATE_TEST_SUITE_P(Families, RecurrentModel, testing::ValuesIn(kCases), [](const auto& test) {
  return std::string(test.param.family);
});

}  // namespace
}  // namespace baton
