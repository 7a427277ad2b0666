#include <algorithm>
#include <cmath>
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
TEST(DecoderBlocks, EveryPartOfTheSpecCounts) {
  const std::vector<Change> changes = {
      {"llama_mqa_tied", "qkv_bias", [](ModelSpec& spec) { spec.qkv_bias = false; }},
      {"llama_mqa_tied", "o_bias", [](ModelSpec& spec) { spec.o_bias = false; }},
      {"llama_mqa_tied", "mlp_bias", [](ModelSpec& spec) { spec.mlp_bias = false; }},
      {"llama_gqa", "theta", [](ModelSpec& spec) { spec.rope.theta = 20000; }},
      {"llama_gqa", "epsilon", [](ModelSpec& spec) { spec.norm_epsilon = 0.1f; }},
      {"llama_gqa", "pairing", [](ModelSpec& spec) { spec.rope.pairing = RopePairing::kAdjacent; }},
      {"llama3_rope", "scaling", [](ModelSpec& spec) { spec.rope.scaling = RopeScaling::kNone; }},
      {"llama3_rope", "yarn", [](ModelSpec& spec) { spec.rope.scaling = RopeScaling::kYarn; }},
      {"mistral_window", "window", [](ModelSpec& spec) { spec.layers[1].window = 0; }},
      {"mixtral", "experts", [](ModelSpec& spec) { spec.moe.experts_per_token = 1; }},
      {"mixtral", "normalize", [](ModelSpec& spec) { spec.moe.normalize = false; }},
      {"mixtral", "window", [](ModelSpec& spec) { spec.layers[1].window = 8; }},
      {"qwen3_moe", "qk_norm", [](ModelSpec& spec) { spec.qk_norm = QkNorm::kNone; }},
      {"qwen3_moe", "normalize", [](ModelSpec& spec) { spec.moe.normalize = false; }},
      {"qwen3_moe", "experts", [](ModelSpec& spec) { spec.moe.experts_per_token = 1; }},
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
      {"deepseek_v2_qlora",
       "group score",
       [](ModelSpec& spec) { spec.moe.group_score = GroupScore::kBestTwo; }},
      {"dots1", "score", [](ModelSpec& spec) { spec.moe.score = RouterScore::kSoftmax; }},
      {"dots1", "bias", [](ModelSpec& spec) { spec.moe.selection_bias = false; }},
      {"dots1", "scale", [](ModelSpec& spec) { spec.moe.scale = 1; }},
      {"dots1", "groups", [](ModelSpec& spec) { spec.moe.groups = 2; }},
      {"dots1", "shared", [](ModelSpec& spec) { spec.moe.shared_intermediate = 0; }},
      {"qwen2_moe", "shared gate", [](ModelSpec& spec) { spec.moe.shared_gate = false; }},
      {"gpt_oss", "sinks", [](ModelSpec& spec) { spec.attention_sinks = false; }},
      {"gpt_oss", "biases", [](ModelSpec& spec) { spec.moe.biases = false; }},
      {"gpt_oss", "limit", [](ModelSpec& spec) { spec.moe.gate.limit = 0.5f; }},
      {"gpt_oss", "no limit", [](ModelSpec& spec) { spec.moe.gate = {}; }},
      {"gpt_oss", "alpha", [](ModelSpec& spec) { spec.moe.gate.alpha = 1; }},
      {"gemma2", "attention cap", [](ModelSpec& spec) { spec.attention_cap = 0; }},
      {"gemma2", "logit cap", [](ModelSpec& spec) { spec.logit_cap = 0; }},
      {"qwen3_next", "gate", [](ModelSpec& spec) { spec.attention_gate = false; }},
      {"gpt_oss", "truncate", [](ModelSpec& spec) { spec.rope.truncate = true; }},
  };
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

// The weights of another source, but all norms of a layer's inputs are those of attention.
class SameNorms final : public WeightSource {
 public:
  explicit SameNorms(const WeightSource& source) : source_(source) {}

  StatusOr<HostMatrix> GetMatrix(const WeightId& id,
                                 int64_t rows,
                                 int64_t cols,
                                 const MatrixSlice& slice) const override {
    return source_.GetMatrix(id, rows, cols, slice);
  }
  StatusOr<std::vector<float>> GetVector(const WeightId& id,
                                         int64_t size,
                                         const std::optional<IndexRange>& range) const override {
    WeightId same = id;
    if (id.kind == WeightKind::kFeedForwardNorm) same.kind = WeightKind::kAttentionNorm;
    if (id.kind == WeightKind::kFeedForwardNormBias) same.kind = WeightKind::kAttentionNormBias;
    return source_.GetVector(same, size, range);
  }
  void Release(const WeightId& id) const override { source_.Release(id); }
  Hash128 HashPieces(const WeightId& id, const PieceShare& share) const override {
    return source_.HashPieces(id, share);
  }
  Hash128 Identity() const override { return source_.Identity(); }
  std::vector<TensorInfo> Tensors() const override { return source_.Tensors(); }

 private:
  const WeightSource& source_;
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

}  // namespace
}  // namespace baton
