#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "common/base/check.h"
#include "tests/unit/model/step_runner.h"

// Blocks of a decoder against other blocks, which compute the same or which do not.
namespace baton {
namespace {

OpenedModel Open(const std::string& family) {
  auto model = OpenModel(std::string(BATON_TEST_DATA) + "/tiny/" + family);
  BATON_CHECK(model.ok(), "{}", Message(model.status()));
  return *std::move(model);
}

std::vector<Logits> LogitsOf(const ModelSpec& spec, const WeightSource& weights) {
  std::vector<TokenId> tokens(60);
  for (size_t i = 0; i < tokens.size(); ++i) {
    tokens[i] = static_cast<TokenId>((9 + 37 * i + i * i % 11) % static_cast<size_t>(spec.vocab));
  }
  auto runner = StepRunner::Create(spec, weights);
  BATON_CHECK(runner.ok(), "{}", Message(runner.status()));
  return (*runner)->RunAll(0, tokens, tokens.size());
}

struct Change {
  std::string family;
  std::string what;
  std::function<void(ModelSpec&)> apply;
};

// A decoder that ignored one of these fields would still load and give plausible logits.
void CheckThatEachCounts(const std::vector<Change>& changes) {
  for (const Change& change : changes) {
    SCOPED_TRACE(change.family + " " + change.what);
    const OpenedModel model = Open(change.family);
    ModelSpec changed = model.spec;
    change.apply(changed);
    const auto right = LogitsOf(model.spec, *model.weights);
    const auto other = LogitsOf(changed, *model.weights);
    double largest = 0;
    for (size_t row = 0; row < right.size(); ++row) {
      for (size_t i = 0; i < right[row].size(); ++i) {
        largest = std::max(largest, std::abs(double{right[row][i]} - other[row][i]));
      }
    }
    EXPECT_GT(largest, 0.01);
    EXPECT_NE(changed.ToString(), model.spec.ToString());
  }
}

TEST(DecoderBlocks, EveryPartOfTheSpecCounts) {
  CheckThatEachCounts({
      {"llama_mqa_tied", "qkv_bias", [](ModelSpec& spec) { spec.qkv_bias = false; }},
      {"llama_mqa_tied", "o_bias", [](ModelSpec& spec) { spec.o_bias = false; }},
      {"llama_mqa_tied", "mlp_bias", [](ModelSpec& spec) { spec.mlp_bias = false; }},
      {"llama_gqa", "theta", [](ModelSpec& spec) { spec.rope.theta = 20000; }},
      {"llama_gqa", "epsilon", [](ModelSpec& spec) { spec.norm_epsilon = 0.1f; }},
      {"llama_gqa", "pairing", [](ModelSpec& spec) { spec.rope.pairing = RopePairing::kAdjacent; }},
      {"llama3_rope", "scaling", [](ModelSpec& spec) { spec.rope.scaling = RopeScaling::kNone; }},
      {"llama3_rope", "yarn", [](ModelSpec& spec) { spec.rope.scaling = RopeScaling::kYarn; }},
      {"mistral_window", "window", [](ModelSpec& spec) { spec.layers[1].window = 0; }},
      {"mixtral", "window", [](ModelSpec& spec) { spec.layers[1].window = 8; }},
      {"qwen3_moe", "qk_norm", [](ModelSpec& spec) { spec.qk_norm = QkNorm::kNone; }},
      {"qwen3_moe", "rotary", [](ModelSpec& spec) { spec.rope.rotary_dim = 8; }},
      {"glm4", "post_norms", [](ModelSpec& spec) { spec.residual = ResidualForm::kPreNorm; }},
      {"qwen3_moe", "head", [](ModelSpec& spec) { spec.tied_head = true; }},
      {"granite", "embedding scale", [](ModelSpec& spec) { spec.embedding_scale = 1; }},
      {"granite", "residual scale", [](ModelSpec& spec) { spec.residual_scale = 1; }},
      {"granite", "attention scale", [](ModelSpec& spec) { spec.attention_scale = 0; }},
      {"granite", "logit scale", [](ModelSpec& spec) { spec.logit_scale = 1; }},
      {"cohere", "qk_norm", [](ModelSpec& spec) { spec.qk_norm = QkNorm::kNone; }},
      {"cohere", "norm", [](ModelSpec& spec) { spec.norm = NormKind::kRms; }},
      {"stablelm", "norm", [](ModelSpec& spec) { spec.norm = NormKind::kLayer; }},
      {"stablelm", "residual", [](ModelSpec& spec) { spec.residual = ResidualForm::kParallel; }},
      {"stablelm",
       "two norms",
       [](ModelSpec& spec) { spec.residual = ResidualForm::kParallelTwoNorms; }},
      {"phi", "head_bias", [](ModelSpec& spec) { spec.head_bias = false; }},
      {"hunyuan_v1_dense", "qk_norm", [](ModelSpec& spec) { spec.qk_norm = QkNorm::kHead; }},
      {"smollm3", "rotary", [](ModelSpec& spec) { spec.layers[3].rotary = true; }},
      {"gemma3_text", "window rope", [](ModelSpec& spec) { spec.window_rope.reset(); }},
      {"gemma3_text",
       "theta of window rope",
       [](ModelSpec& spec) { spec.window_rope->theta = 20000; }},
      {"gemma3_text",
       "feed_forward",
       [](ModelSpec& spec) { spec.feed_forward = FeedForward::kSiluGated; }},
      {"gemma3_text", "window", [](ModelSpec& spec) { spec.layers[2].window = 32; }},
      {"deepseek_v3", "attention scale", [](ModelSpec& spec) { spec.attention_scale = 0; }},
      {"deepseek_v3", "pairing", [](ModelSpec& spec) { spec.rope.pairing = RopePairing::kHalves; }},
      {"gpt_oss", "sinks", [](ModelSpec& spec) { spec.attention_sinks = false; }},
      {"gemma2", "attention cap", [](ModelSpec& spec) { spec.attention_cap = 0; }},
      {"gemma2", "logit cap", [](ModelSpec& spec) { spec.logit_cap = 0; }},
      {"gpt_oss", "truncate", [](ModelSpec& spec) { spec.rope.truncate = true; }},
  });
}

TEST(DecoderBlocks, EveryPartOfRecurrentLayersCounts) {
  CheckThatEachCounts({
      {"nemotron_h", "norm", [](ModelSpec& spec) { spec.recurrent.norm = false; }},
      {"nemotron_h", "bias", [](ModelSpec& spec) { spec.recurrent.convolution_bias = false; }},
      {"nemotron_h", "least time", [](ModelSpec& spec) { spec.recurrent.min_time = 1; }},
      {"nemotron_h", "most time", [](ModelSpec& spec) { spec.recurrent.max_time = 0.5f; }},
      {"falcon_h1", "input", [](ModelSpec& spec) { spec.recurrent.input_scale = 1; }},
      {"falcon_h1", "gate", [](ModelSpec& spec) { spec.recurrent.gate_scale = 1; }},
      {"falcon_h1", "value", [](ModelSpec& spec) { spec.recurrent.value_scale = 1; }},
      {"falcon_h1", "key", [](ModelSpec& spec) { spec.recurrent.key_scale = 1; }},
      {"falcon_h1", "query", [](ModelSpec& spec) { spec.recurrent.query_scale = 1; }},
      {"falcon_h1", "time", [](ModelSpec& spec) { spec.recurrent.time_scale = 1; }},
      {"falcon_h1", "output", [](ModelSpec& spec) { spec.recurrent.output_scale = 1; }},
      {"falcon_h1", "attention", [](ModelSpec& spec) { spec.attention_input_scale = 1; }},
      {"falcon_h1", "its output", [](ModelSpec& spec) { spec.attention_output_scale = 1; }},
      {"falcon_h1", "network", [](ModelSpec& spec) { spec.feed_forward_scale = 1; }},
      {"falcon_h1", "its gate", [](ModelSpec& spec) { spec.gate_scale = 1; }},
      {"kimi_linear", "rope", [](ModelSpec& spec) { spec.layers[2].rotary = true; }},
      {"jamba", "rope", [](ModelSpec& spec) { spec.layers[2].rotary = true; }},
  });
}

TEST(DecoderBlocks, EveryPartOfTheExpertsCounts) {
  CheckThatEachCounts({
      {"mixtral", "experts", [](ModelSpec& spec) { spec.moe.experts_per_token = 1; }},
      {"mixtral", "normalize", [](ModelSpec& spec) { spec.moe.normalize = false; }},
      {"qwen3_moe", "normalize", [](ModelSpec& spec) { spec.moe.normalize = false; }},
      {"qwen3_moe", "experts", [](ModelSpec& spec) { spec.moe.experts_per_token = 1; }},
      {"deepseek_v2_qlora",
       "group score",
       [](ModelSpec& spec) { spec.moe.group_score = GroupScore::kBestTwo; }},
      {"dots1", "score", [](ModelSpec& spec) { spec.moe.score = RouterScore::kSoftmax; }},
      {"dots1", "bias", [](ModelSpec& spec) { spec.moe.selection_bias = false; }},
      {"dots1", "scale", [](ModelSpec& spec) { spec.moe.scale = 1; }},
      {"dots1", "groups", [](ModelSpec& spec) { spec.moe.groups = 2; }},
      {"dots1", "shared", [](ModelSpec& spec) { spec.moe.shared_intermediate = 0; }},
      {"ernie4_5_moe", "bias", [](ModelSpec& spec) { spec.moe.selection_bias = false; }},
      {"ernie4_5_moe", "least sum", [](ModelSpec& spec) { spec.moe.least_sum = 1; }},
      {"hunyuan_v1_moe", "shared", [](ModelSpec& spec) { spec.moe.shared_intermediate = 0; }},
      {"hunyuan_v1_moe", "normalize", [](ModelSpec& spec) { spec.moe.normalize = false; }},
      {"qwen2_moe", "shared gate", [](ModelSpec& spec) { spec.moe.shared_gate = false; }},
      {"gpt_oss", "biases", [](ModelSpec& spec) { spec.moe.biases = false; }},
      {"gpt_oss", "limit", [](ModelSpec& spec) { spec.moe.gate.limit = 0.5f; }},
      {"gpt_oss", "no limit", [](ModelSpec& spec) { spec.moe.gate = {}; }},
      {"gpt_oss", "alpha", [](ModelSpec& spec) { spec.moe.gate.alpha = 1; }},
      {"qwen3_next", "gate", [](ModelSpec& spec) { spec.attention_gate = false; }},
  });
}

// The weights of another source, where some weights take the place of others.
class ReplacedWeights : public WeightSource {
 public:
  explicit ReplacedWeights(const WeightSource& source) : source_(source) {}

  StatusOr<HostMatrix> GetMatrix(const WeightId& id,
                                 int64_t rows,
                                 int64_t cols,
                                 const MatrixSlice& slice) const override {
    return source_.GetMatrix(Replacement(id), rows, cols, slice);
  }
  StatusOr<std::vector<float>> GetVector(const WeightId& id,
                                         int64_t size,
                                         const std::optional<IndexRange>& range) const override {
    return source_.GetVector(Replacement(id), size, range);
  }
  void Release(const WeightId& id) const override { source_.Release(Replacement(id)); }
  Hash128 HashPieces(const WeightId& id, const PieceShare& share) const override {
    return source_.HashPieces(Replacement(id), share);
  }
  Hash128 Identity() const override { return source_.Identity(); }
  std::vector<TensorInfo> Tensors() const override { return source_.Tensors(); }

 protected:
  virtual WeightId Replacement(WeightId id) const = 0;

 private:
  const WeightSource& source_;
};

// All norms of a layer's inputs are those of attention.
class SameNorms final : public ReplacedWeights {
 public:
  using ReplacedWeights::ReplacedWeights;

 protected:
  WeightId Replacement(WeightId id) const override {
    if (id.kind == WeightKind::kFeedForwardNorm) id.kind = WeightKind::kAttentionNorm;
    if (id.kind == WeightKind::kFeedForwardNormBias) id.kind = WeightKind::kAttentionNormBias;
    return id;
  }
};

// The shared expert is the dense network, and the outputs of the other experts are 0.
class SilentExperts final : public ReplacedWeights {
 public:
  using ReplacedWeights::ReplacedWeights;

  StatusOr<HostMatrix> GetMatrix(const WeightId& id,
                                 int64_t rows,
                                 int64_t cols,
                                 const MatrixSlice& slice) const override {
    if (id.kind != WeightKind::kRouter && id.kind != WeightKind::kExpertDown) {
      return ReplacedWeights::GetMatrix(id, rows, cols, slice);
    }
    zeros_.resize(std::max(zeros_.size(), static_cast<size_t>(rows * cols) * sizeof(float)));
    return HostMatrix{DType::kF32, rows, cols, zeros_.data()};
  }

 protected:
  WeightId Replacement(WeightId id) const override {
    const auto dense = [](WeightKind kind) {
      switch (kind) {
        case WeightKind::kExpertGate:
        case WeightKind::kSharedGate:
          return WeightKind::kGate;
        case WeightKind::kExpertUp:
        case WeightKind::kSharedUp:
          return WeightKind::kUp;
        case WeightKind::kRouter:
        case WeightKind::kExpertDown:
        case WeightKind::kSharedDown:
          return WeightKind::kDown;
        case WeightKind::kSharedGateBias:
          return WeightKind::kGateBias;
        case WeightKind::kSharedUpBias:
          return WeightKind::kUpBias;
        case WeightKind::kSharedDownBias:
          return WeightKind::kDownBias;
        default:
          return kind;
      }
    };
    return {dense(id.kind), id.layer, -1};
  }

 private:
  mutable std::vector<std::byte> zeros_;
};

// Embeddings and all that is added to them have the same factor: a norm takes it out again, and
// only the epsilon, which is added to the mean square, tells it.
TEST(DecoderBlocks, TheResidualScaleReachesTheEpsilon) {
  const OpenedModel model = Open("granite");
  ModelSpec scaled = model.spec;
  scaled.norm_epsilon = 0.2f;
  scaled.embedding_scale = scaled.residual_scale = 0.5f;
  ModelSpec same = scaled;
  same.norm_epsilon = 0.2f / 0.25f;
  same.embedding_scale = same.residual_scale = 1;
  EXPECT_EQ(LogitsOf(scaled, *model.weights), LogitsOf(same, *model.weights));
}

// With equal norms, the block with two of them is the block with one.
TEST(DecoderBlocks, ParallelNetworksReadTheSameResidual) {
  const OpenedModel model = Open("stablelm");
  const SameNorms weights(*model.weights);
  ModelSpec one = model.spec;
  one.residual = ResidualForm::kParallel;
  ModelSpec two = model.spec;
  two.residual = ResidualForm::kParallelTwoNorms;
  EXPECT_EQ(LogitsOf(one, weights), LogitsOf(two, weights));
  EXPECT_NE(LogitsOf(one, weights), LogitsOf(model.spec, weights));
}

TEST(DecoderBlocks, BiasesOfSharedExpertsAreAdded) {
  const OpenedModel model = Open("llama_mqa_tied");
  ASSERT_TRUE(model.spec.mlp_bias);
  const SilentExperts weights(*model.weights);
  ModelSpec experts = model.spec;
  const int32_t size = model.spec.intermediate;
  experts.moe = {.experts = 2, .experts_per_token = 1};
  experts.moe.intermediate = experts.moe.shared_intermediate = size;
  for (LayerSpec& layer : experts.layers) layer.moe = true;
  EXPECT_EQ(LogitsOf(experts, weights), LogitsOf(model.spec, *model.weights));
}

}  // namespace
}  // namespace baton
