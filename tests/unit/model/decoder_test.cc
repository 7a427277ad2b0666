#include "common/model/decoder.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/base/check.h"
#include "common/model/decoder_weights.h"
#include "common/model/dummy_weights.h"
#include "common/model/kv_scales.h"
#include "common/model/rope_frequencies.h"
#include "tests/parity/weight_types.h"
#include "tests/unit/model/model_gguf.h"
#include "tests/unit/model/step_runner.h"
#include "tests/unit/model/tiny_families.h"

namespace baton {
namespace {

using testing::HasSubstr;

std::string TinyModel(const std::string& family) {
  return std::string(BATON_TEST_DATA) + "/tiny/" + family;
}

OpenedModel Open(const std::string& family) {
  auto model = OpenModel(TinyModel(family));
  BATON_CHECK(model.ok(), "{}", Message(model.status()));
  return *std::move(model);
}

std::unique_ptr<StepRunner> MakeRunner(const ModelSpec& spec,
                                       const WeightSource& weights,
                                       const RunnerOptions& options = {}) {
  auto runner = StepRunner::Create(spec, weights, options);
  BATON_CHECK(runner.ok(), "{}", Message(runner.status()));
  return *std::move(runner);
}

std::vector<TokenId> Prompt(size_t length, TokenId first, int32_t vocab) {
  std::vector<TokenId> tokens(length);
  for (size_t i = 0; i < length; ++i) {
    tokens[i] = static_cast<TokenId>((first + 37 * i + i * i % 11) % vocab);
  }
  return tokens;
}

double LargestDifference(const std::vector<Logits>& a, const std::vector<Logits>& b) {
  BATON_CHECK(a.size() == b.size(), "{} and {} rows", a.size(), b.size());
  double largest = 0;
  for (size_t row = 0; row < a.size(); ++row) {
    for (size_t i = 0; i < a[row].size(); ++i) {
      const double difference = std::abs(double{a[row][i]} - b[row][i]);
      if (std::isnan(difference)) return std::numeric_limits<double>::infinity();
      largest = std::max(largest, difference);
    }
  }
  return largest;
}

class MixedBatch : public testing::TestWithParam<const char*> {};

// Three sequences whose prompts are computed in different chunks, beside decode rows of the others.
// Every row must have the same bits as when its sequence is computed alone.
TEST_P(MixedBatch, RowsDoNotDependOnTheirNeighbours) {
  const OpenedModel model = Open(GetParam());
  const auto runner = MakeRunner(model.spec, *model.weights);
  const auto a = Prompt(75, 3, model.spec.vocab);
  const auto b = Prompt(50, 100, model.spec.vocab);
  const auto c = Prompt(9, 200, model.spec.vocab);
  std::vector<std::vector<Logits>> alone;
  for (const auto& tokens : {a, b, c}) {
    runner->Reset();
    alone.push_back(runner->RunAll(0, tokens, tokens.size()));
  }

  runner->Reset();
  std::vector<std::vector<Logits>> mixed(3);
  const std::vector<std::vector<size_t>> steps = {
      {33, 0, 4}, {1, 17, 0}, {16, 1, 1}, {0, 31, 1}, {25, 1, 3}};
  const std::vector<TokenId>* all[] = {&a, &b, &c};
  std::vector<size_t> done(3, 0);
  for (const std::vector<size_t>& counts : steps) {
    std::vector<Chunk> chunks;
    for (int32_t s = 0; s < 3; ++s) {
      if (counts[s] == 0) continue;
      chunks.push_back({s, std::span(*all[s]).subspan(done[s], counts[s]), WantLogits::kAll});
    }
    std::vector<Logits> rows = runner->Step(chunks);
    size_t next = 0;
    for (const Chunk& chunk : chunks) {
      for (size_t i = 0; i < chunk.tokens.size(); ++i) {
        mixed[chunk.sequence].push_back(std::move(rows[next++]));
      }
      done[chunk.sequence] += chunk.tokens.size();
    }
  }
  for (int32_t s = 0; s < 3; ++s) {
    ASSERT_EQ(mixed[s].size(), alone[s].size());
    for (size_t i = 0; i < alone[s].size(); ++i) {
      ASSERT_EQ(mixed[s][i], alone[s][i]) << "sequence " << s << " position " << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Families,
    MixedBatch,
    testing::Values("glm4", "llama_gqa", "llama_mqa_tied", "mistral_window", "qwen2", "qwen3_moe"),
    [](const auto& test) { return std::string(test.param); });
INSTANTIATE_TEST_SUITE_P(MoreFamilies,
                         MixedBatch,
                         testing::ValuesIn(kTinyFamilies),
                         [](const auto& test) { return std::string(test.param); });

TEST(Decoder, WantedRowsEqualThoseOfAllRows) {
  const OpenedModel model = Open("llama_mqa_tied");
  const auto runner = MakeRunner(model.spec, *model.weights);
  const auto tokens = Prompt(40, 5, model.spec.vocab);
  const auto all = runner->RunAll(0, tokens, tokens.size());
  runner->Reset();
  EXPECT_TRUE(runner->Step({0, std::span(tokens).first(20), WantLogits::kNone}).empty());
  const auto last = runner->Step({0, std::span(tokens).subspan(20), WantLogits::kLast});
  ASSERT_EQ(last.size(), 1u);
  EXPECT_EQ(last.front(), all.back());
}

TEST(Decoder, CallsTheHookAfterEachLayersKvWrite) {
  const OpenedModel model = Open("qwen2");
  const auto runner = MakeRunner(model.spec, *model.weights);
  const auto tokens = Prompt(3, 1, model.spec.vocab);
  std::vector<int32_t> layers;
  const Chunk chunk{0, tokens, WantLogits::kNone};
  runner->Step(std::span(&chunk, 1), [&](int32_t layer) { layers.push_back(layer); });
  EXPECT_THAT(layers, testing::ElementsAre(0, 1, 2));
}

TEST(Decoder, ReportsProgressUpToOne) {
  const OpenedModel model = Open("qwen2");
  CpuDevice device;
  auto ops = MakeCpuOps(device, {});
  ASSERT_TRUE(ops.ok());
  std::vector<double> shares;
  const auto decoder = Decoder::Load(
      model.spec, *model.weights, **ops, {}, [&](double share) { shares.push_back(share); });
  ASSERT_TRUE(decoder.ok()) << Message(decoder.status());
  ASSERT_EQ(shares.size(), 5u);
  EXPECT_TRUE(std::is_sorted(shares.begin(), shares.end()));
  EXPECT_DOUBLE_EQ(shares.back(), 1.0);
  EXPECT_GT((*decoder)->weight_bytes(), 0u);
}

class QuantizedModel : public testing::TestWithParam<DType> {};

// Compares a model in a block format with the same weights, dequantised, in float32. The tolerance
// covers backends that compute GEMMs in bf16; a wrong format has errors as large as the logits.
TEST_P(QuantizedModel, EqualsItsDequantizedSelf) {
  const ModelSpec spec = SmallSpec();
  const DummyWeights vectors(7);
  const MatrixMaker blocks = RandomBlocks(GetParam(), 11);
  const auto quantized_file = WriteModel(spec, blocks, VectorsOf(vectors)).Finish();
  const auto float_file = WriteModel(spec, Dequantized(blocks), VectorsOf(vectors)).Finish();
  const auto found = SpecOf(quantized_file);
  ASSERT_TRUE(found.ok()) << Message(found.status());
  const auto quantized = WeightsOf(quantized_file);
  const auto floats = WeightsOf(float_file);
  ASSERT_TRUE(quantized.ok() && floats.ok());

  const auto tokens = Prompt(24, 3, spec.vocab);
  const auto a = MakeRunner(*found, **quantized)->RunAll(0, tokens, tokens.size());
  const auto b = MakeRunner(*found, **floats)->RunAll(0, tokens, tokens.size());
  double square = 0;
  for (const Logits& row : b) {
    for (const float logit : row) square += double{logit} * logit;
  }
  const double size = std::sqrt(square / static_cast<double>(b.size() * spec.vocab));
  EXPECT_GT(size, 0.05);
  EXPECT_LT(LargestDifference(a, b), 0.05 * size) << "logits are about " << size;
}

INSTANTIATE_TEST_SUITE_P(Formats,
                         QuantizedModel,
                         testing::ValuesIn(kBlockTypes.begin(), kBlockTypes.end()),
                         [](const auto& test) { return std::string(Name(test.param)); });

class SameModelAsGguf : public testing::TestWithParam<std::string> {};

// The tiny checkpoints written as GGUF (with permuted q and k rows for Llama) must give the same
// logits.
TEST_P(SameModelAsGguf, GivesTheSameLogits) {
  const OpenedModel model = Open(GetParam());
  ModelSpec written = model.spec;
  std::vector<float> factors;
  if (model.spec.rope.scaling == RopeScaling::kLlama3) {
    // The converter of llama.cpp writes Llama 3 scaling as a tensor of factors.
    RopeSpec plain = model.spec.rope;
    plain.scaling = RopeScaling::kNone;
    const auto scaled = ComputeRopeFrequencies(model.spec.rope, {}).inverse;
    const auto unscaled = ComputeRopeFrequencies(plain, {}).inverse;
    for (size_t i = 0; i < scaled.size(); ++i) factors.push_back(unscaled[i] / scaled[i]);
    written.rope.file_factors = true;
  }
  const VectorMaker own = VectorsOf(*model.weights);
  const VectorMaker vectors = [&](const WeightId& id, int64_t size) {
    return id.kind == WeightKind::kRopeFactors ? factors : own(id, size);
  };
  const auto file = WriteModel(written, FloatsOf(*model.weights, model.spec), vectors).Finish();
  const auto spec = SpecOf(file);
  ASSERT_TRUE(spec.ok()) << Message(spec.status());
  const auto weights = WeightsOf(file);
  ASSERT_TRUE(weights.ok()) << Message(weights.status());
  const auto tokens = Prompt(64, 9, model.spec.vocab);
  const auto expected = MakeRunner(model.spec, *model.weights)->RunAll(0, tokens, tokens.size());
  const auto actual = MakeRunner(*spec, **weights)->RunAll(0, tokens, tokens.size());
  EXPECT_LT(LargestDifference(expected, actual), 1e-3);
}

INSTANTIATE_TEST_SUITE_P(Families,
                         SameModelAsGguf,
                         testing::Values("llama_gqa",
                                         "llama3_rope",
                                         "mixtral",
                                         "qwen2",
                                         "qwen3_moe",
                                         "glm4",
                                         "granite",
                                         "granitemoe",
                                         "olmo2",
                                         "phi3",
                                         "qwen2_moe",
                                         "seed_oss",
                                         "smollm3"),
                         [](const auto& test) { return test.param; });

// Files from before April 2024 have one tensor per expert.
TEST(Decoder, ReadsExpertsThatAreTensorsOfTheirOwn) {
  const OpenedModel model = Open("mixtral");
  const MatrixMaker matrices = FloatsOf(*model.weights, model.spec);
  const VectorMaker vectors = VectorsOf(*model.weights);
  const auto stacked = WriteModel(model.spec, matrices, vectors).Finish();
  const auto split = WriteModel(model.spec, matrices, vectors, /*split_experts=*/true).Finish();
  const auto spec = SpecOf(split);
  ASSERT_TRUE(spec.ok()) << Message(spec.status());
  EXPECT_EQ(spec->ToString(), SpecOf(stacked)->ToString());
  const auto weights = WeightsOf(split);
  const auto same = WeightsOf(stacked);
  ASSERT_TRUE(weights.ok() && same.ok());
  const auto tokens = Prompt(30, 9, model.spec.vocab);
  EXPECT_EQ(MakeRunner(*spec, **weights)->RunAll(0, tokens, tokens.size()),
            MakeRunner(*spec, **same)->RunAll(0, tokens, tokens.size()));
  EXPECT_THAT((*weights)->Unread(), testing::IsEmpty());
}

// Layers of different windows in block tables of their own give the bits of one table for all.
TEST(Decoder, CacheGroupsChangeNoBit) {
  const OpenedModel model = Open("llama_gqa");
  ModelSpec spec = model.spec;
  for (size_t layer = 0; layer < spec.layers.size(); ++layer) {
    spec.layers[layer].window = layer % 3 == 1 ? 0 : 8 + 20 * static_cast<int32_t>(layer % 3);
  }
  const auto tokens = Prompt(90, 9, spec.vocab);
  RunnerOptions one_group;
  one_group.cache_groups = false;
  const auto runner = MakeRunner(spec, *model.weights, one_group);
  EXPECT_EQ(runner->kv().groups, 1);
  const auto expected = runner->RunAll(0, tokens, 90);
  for (const size_t chunk_rows : {1, 7, 90}) {
    const auto grouped = MakeRunner(spec, *model.weights);
    EXPECT_EQ(grouped->kv().groups, spec.layers.size() > 2 ? 3 : 2);
    EXPECT_EQ(LargestDifference(expected, grouped->RunAll(0, tokens, chunk_rows)), 0);
  }
}

TEST(Decoder, NamesFileTensorAndShapes) {
  const OpenedModel model = Open("llama_gqa");
  ModelSpec wrong = model.spec;
  wrong.intermediate = 161;
  Status status = StepRunner::Create(wrong, *model.weights).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(Message(status),
              HasSubstr("of-00005.safetensors: tensor "
                        "model.layers.0.mlp.gate_proj.weight has shape [160, 64]; "
                        "expected [161, 64]"));
  const OpenedModel joined = Open("glm4");
  wrong = joined.spec;
  wrong.intermediate = 113;
  EXPECT_THAT(Message(StepRunner::Create(wrong, *joined.weights).status()),
              HasSubstr("tensor model.layers.0.mlp.gate_up_proj.weight has shape [224, 64]; "
                        "expected [226, 64]"));
  wrong = model.spec;
  wrong.qkv_bias = true;
  status = StepRunner::Create(wrong, *model.weights).status();
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_THAT(Message(status),
              HasSubstr("llama_gqa: tensor model.layers.0.self_attn.q_proj.bias is missing"));
  wrong = model.spec;
  wrong.heads = 7;
  EXPECT_THAT(
      Message(StepRunner::Create(wrong, *model.weights).status()),
      HasSubstr("number of attention heads 7 must be a multiple of the number of KV heads"));
}

TEST(Decoder, RefusesAShapeThatTheBackendCannotRun) {
  const OpenedModel model = Open("llama_gqa");
  ModelSpec odd = model.spec;
  odd.head_dim = odd.rope.rotary_dim = 12;
  const Status status = StepRunner::Create(odd, DummyWeights(1)).status();
  EXPECT_EQ(status.code(), StatusCode::kUnimplemented);
  EXPECT_EQ(
      Message(status),
      "the model cannot run on cpu: the head dimension is 12; the CPU backend needs a multiple "
      "of 8");
}

TEST(Decoder, NamesTheTypeOfATensorThatItCannotRead) {
  const OpenedModel model = Open("llama_gqa");
  auto bytes =
      WriteModel(model.spec, FloatsOf(*model.weights, model.spec), VectorsOf(*model.weights))
          .Finish();
  const std::string name = "blk.1.attn_k.weight";
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const uint32_t other = 34;
  // The type follows the name, the number of dimensions and two dimensions.
  std::memcpy(bytes.data() + text.find(name) + name.size() + 4 + 16, &other, sizeof(other));
  const auto weights = WeightsOf(bytes);
  ASSERT_TRUE(weights.ok()) << Message(weights.status());
  const Status status = StepRunner::Create(model.spec, **weights).status();
  EXPECT_EQ(status.code(), StatusCode::kUnimplemented);
  EXPECT_THAT(Message(status),
              HasSubstr("tensor blk.1.attn_k.weight is of ggml type 34 (TQ1_0), which is not "
                        "supported; supported are F32 F16"));
}

// The shape comes from an untrusted file: a shape that does not fit into memory must give an error
// status, never an exception or a killed process.
TEST(Decoder, RefusesAShapeThatDoesNotFitMemory) {
  const OpenedModel model = Open("llama_gqa");
  ModelSpec large = model.spec;
  large.vocab = ModelSpec::kMaxVocabulary;
  large.hidden = ModelSpec::kMaxHidden;
  Status status = StepRunner::Create(large, DummyWeights(1)).status();
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(Message(status), HasSubstr("cannot allocate 35184372088832 bytes of host memory"));

  RunnerOptions options;
  options.limits = {.max_rows = 1 << 30, .max_logit_rows = 1};
  status = StepRunner::Create(model.spec, *model.weights, options).status();
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(Message(status),
              HasSubstr("activations of steps of 1073741824 tokens (engine.max_step_tokens) take"));
}

TEST(Decoder, RefusesEmptyLimits) {
  const OpenedModel model = Open("qwen2");
  RunnerOptions options;
  options.limits = {0, 1};
  EXPECT_THAT(Message(StepRunner::Create(model.spec, *model.weights, options).status()),
              HasSubstr("max_rows 0"));
}

TEST(Decoder, FingerprintTellsModelsApart) {
  const OpenedModel model = Open("llama_gqa");
  const auto base = MakeRunner(model.spec, *model.weights)->decoder().fingerprint();
  EXPECT_EQ(MakeRunner(model.spec, *Open("llama_gqa").weights)->decoder().fingerprint(), base);
  ModelSpec other = model.spec;
  other.rope.theta = 20000;
  EXPECT_NE(MakeRunner(other, *model.weights)->decoder().fingerprint(), base);
  const DummyWeights one(1);
  const DummyWeights two(2);
  EXPECT_NE(MakeRunner(model.spec, one)->decoder().fingerprint(),
            MakeRunner(model.spec, two)->decoder().fingerprint());
}

TEST(Decoder, RefusesAQuantizedCacheOnTheCpu) {
  const OpenedModel model = Open("qwen2");
  RunnerOptions options;
  options.limits.fp8_kv = true;
  EXPECT_THAT(Message(StepRunner::Create(model.spec, *model.weights, options).status()),
              HasSubstr("an fp8 KV cache needs a GPU of sm_89 or newer, and a CUDA backend with "
                        "code for it; kv_type must be another type on cpu"));
}

class KvScales : public testing::TestWithParam<const char*> {};

// No value that the model writes overflows E4M3, and the largest values use much of its range.
TEST_P(KvScales, HoldWhatTheModelWrites) {
  const OpenedModel model = Open(GetParam());
  const ModelSpec& spec = model.spec;
  const auto runner = MakeRunner(spec, *model.weights);
  const size_t count = 300;
  runner->RunAll(0, Prompt(count, 3, spec.vocab), count);
  const KvView kv = runner->kv();
  const float magnitude = ComputeRopeFrequencies(spec.rope, {}).magnitude;
  for (int32_t layer = 0; layer < spec.layer_count(); ++layer) {
    const auto scales = ComputeKvScales(spec, *model.weights, layer, magnitude);
    ASSERT_TRUE(scales.ok()) << Message(scales.status());
    ASSERT_EQ(scales->size(), static_cast<size_t>(2 * spec.kv_heads));
    for (int32_t part = 0; part < 2; ++part) {
      for (int32_t head = 0; head < spec.kv_heads; ++head) {
        const float scale = scales->at(int64_t{part} * spec.kv_heads + head);
        EXPECT_EQ(std::exp2(std::round(std::log2(scale))), scale);
        float largest = 0;
        for (int32_t block = 0; block < kv.blocks; ++block) {
          const auto* numbers = reinterpret_cast<const float*>(
              part == 0 ? kv.Key(block, layer, head) : kv.Value(block, layer, head));
          for (int32_t i = 0; i < kv.block_tokens * kv.head_dim; ++i) {
            largest = std::max(largest, std::fabs(numbers[i]));
          }
        }
        EXPECT_LT(largest / scale, 448) << "layer " << layer << ", head " << head;
        EXPECT_GT(largest / scale, 4) << "layer " << layer << ", head " << head;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Families,
                         KvScales,
                         testing::Values("llama3_rope", "llama_gqa", "qwen2", "qwen3_moe"));

TEST(DummyWeights, GiveTheSameModelForTheSameSeed) {
  const ModelSpec spec = SmallSpec();
  const auto tokens = Prompt(5, 1, spec.vocab);
  const auto logits = [&](uint64_t seed) {
    const DummyWeights weights(seed);
    return MakeRunner(spec, weights)->RunAll(0, tokens, tokens.size());
  };
  const auto first = logits(1);
  EXPECT_EQ(logits(1), first);
  EXPECT_NE(logits(2), first);
  EXPECT_LT(LargestDifference(first, logits(2)), 100);
}

TEST(MayUseFp8, IsTrueOfProductsOfLayersButThoseThatLoseMost) {
  ModelSpec spec;
  spec.layers.resize(4);
  Bf16Layers bf16;
  const auto layers = [&](WeightKind kind) {
    std::vector<int32_t> quantized;
    for (int32_t layer = 0; layer < spec.layer_count(); ++layer) {
      if (MayUseFp8(spec, {kind, layer, -1}, bf16)) quantized.push_back(layer);
    }
    return quantized;
  };
  using enum WeightKind;
  for (const WeightKind kind : {kQuery, kKey, kValue}) {
    EXPECT_THAT(layers(kind), testing::ElementsAre(0, 1, 2, 3));
  }
  EXPECT_THAT(layers(kAttentionOutput), testing::ElementsAre(2, 3));
  for (const WeightKind kind : {kGate, kUp, kDown, kExpertGate, kExpertUp, kExpertDown}) {
    EXPECT_THAT(layers(kind), testing::ElementsAre(1, 2));
  }
  EXPECT_THAT(layers(kRouter), testing::IsEmpty());
  bf16 = {.first_attention_outputs = 1, .first_mlps = 2, .last_mlps = 0};
  EXPECT_THAT(layers(kAttentionOutput), testing::ElementsAre(1, 2, 3));
  EXPECT_THAT(layers(kDown), testing::ElementsAre(2, 3));
  EXPECT_THAT(layers(kExpertDown), testing::ElementsAre(2, 3));
  bf16 = {.first_attention_outputs = 9, .first_mlps = 0, .last_mlps = 9};
  EXPECT_THAT(layers(kAttentionOutput), testing::IsEmpty());
  EXPECT_THAT(layers(kUp), testing::IsEmpty());
  EXPECT_THAT(layers(kQuery), testing::ElementsAre(0, 1, 2, 3));
  EXPECT_FALSE(MayUseFp8(spec, {kEmbedding}, bf16));
  EXPECT_FALSE(MayUseFp8(spec, {kHead}, bf16));
}

}  // namespace
}  // namespace baton
