#include "common/model/decoder_slice.h"

#include <cmath>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "common/base/check.h"
#include "common/model/decoder_weights.h"
#include "common/model/dummy_weights.h"
#include "common/model/kv_scales.h"
#include "common/model/open_model.h"
#include "kernels/cpu/cpu_backend.h"
#include "tests/parity/device_tensor.h"
#include "tests/parity/step_plan.h"
#include "tests/parity/weight_types.h"
#include "tests/unit/model/model_gguf.h"

// Decoders that are loaded in slices, one for each rank, against the whole decoder.
namespace baton {
namespace {

using parity::DeviceTensor;
using Numbers = std::vector<float>;

IndexRange Share(int64_t size, int64_t rank, int64_t ranks) {
  return {size * rank / ranks, size * (rank + 1) / ranks};
}

// Ranks that share a KV head have a copy of it each.
DecoderSlice SliceOfRank(const ModelSpec& spec, int64_t rank, int64_t ranks) {
  DecoderSlice slice;
  const int64_t group = spec.heads / spec.kv_heads;
  slice.heads = Share(spec.heads, rank, ranks);
  slice.kv_heads = IndexRange{slice.heads->begin / group, (slice.heads->end - 1) / group + 1};
  if (spec.intermediate > 0) slice.intermediate = Share(spec.intermediate, rank, ranks);
  if (spec.moe.experts > 0) slice.expert_intermediate = Share(spec.moe.intermediate, rank, ranks);
  slice.vocab = Share(spec.vocab, rank, ranks);
  return slice;
}

Numbers Part(const Numbers& numbers, const IndexRange& range) {
  return {numbers.begin() + range.begin, numbers.begin() + range.end};
}

void Append(Numbers& to, const Numbers& more) {
  to.insert(to.end(), more.begin(), more.end());
}

// A model, loaded whole and in slices.
class Slices {
 public:
  using MatrixOf = std::function<const Matrix*(const DecoderWeights&)>;
  using VectorOf = std::function<const Vector*(const DecoderWeights&)>;

  Slices(const ModelSpec& spec, const WeightSource& source, int64_t ranks) : spec_(spec) {
    auto ops = MakeCpuOps(device_, {});
    BATON_CHECK(ops.ok(), "{}", Message(ops.status()));
    ops_ = *std::move(ops);
    whole_ = Load(source, {});
    for (int64_t rank = 0; rank < ranks; ++rank) {
      slices_.push_back(SliceOfRank(spec, rank, ranks));
      parts_.push_back(Load(source, slices_.back()));
    }
  }

  void CheckAll() {
    CheckRows([](const DecoderWeights& w) { return w.embedding.get(); });
    CheckRows([](const DecoderWeights& w) { return &w.output_head(); });
    for (int32_t layer = 0; layer < spec_.layer_count(); ++layer) {
      SCOPED_TRACE(fmt::format("layer {}", layer));
      CheckAttention(layer);
      if (spec_.layers[layer].moe) {
        CheckExperts(layer);
      } else {
        CheckDense(layer);
      }
    }
  }

 private:
  DecoderWeights Load(const WeightSource& source, const DecoderSlice& slice) {
    auto weights = LoadDecoderWeights(spec_, source, *ops_, {.slice = slice});
    BATON_CHECK(weights.ok(), "{}", Message(weights.status()));
    return *std::move(weights);
  }

  Numbers Product(const Matrix& matrix, const Vector* bias, const Numbers& x) {
    const DeviceTensor in(*ops_, 1, matrix.cols(), x);
    const DeviceTensor out(*ops_, DType::kF32, 1, matrix.rows());
    parity::InStep(*ops_, [&] { ops_->MatMul(in.view(), matrix, bias, out.view()); });
    return out.Read();
  }

  Numbers GatedProduct(const Matrix& gate_up, const Vector* bias, const Numbers& x) {
    const DeviceTensor in(*ops_, 1, gate_up.cols(), x);
    const DeviceTensor out(*ops_, DType::kF32, 1, gate_up.rows() / 2);
    parity::InStep(*ops_, [&] { ops_->MatMulSiluMul(in.view(), gate_up, bias, out.view()); });
    return out.Read();
  }

  Numbers Input(int64_t size) { return parity::RandomFloats(static_cast<size_t>(size), ++seed_); }

  // The products of the slices' rows, in order, are the product of the whole.
  void CheckRows(const MatrixOf& matrix) {
    const Numbers x = Input(spec_.hidden);
    Numbers joined;
    for (const auto& part : parts_) Append(joined, Product(*matrix(part), nullptr, x));
    EXPECT_EQ(joined, Product(*matrix(whole_), nullptr, x));
  }

  // As CheckRows, for gate and up.
  void CheckGated(const MatrixOf& gate_up, const VectorOf& bias) {
    const Numbers x = Input(spec_.hidden);
    Numbers joined;
    for (const auto& part : parts_) Append(joined, GatedProduct(*gate_up(part), bias(part), x));
    EXPECT_EQ(joined, GatedProduct(*gate_up(whole_), bias(whole_), x));
  }

  // The sum of the products of the slices' columns is the product of the whole. Rank r has the
  // columns ranges[r].
  void CheckColumns(const std::vector<IndexRange>& ranges,
                    const MatrixOf& matrix,
                    const VectorOf& bias) {
    const Numbers x = Input(matrix(whole_)->cols());
    const Numbers want = Product(*matrix(whole_), bias(whole_), x);
    std::vector<double> sum(want.size());
    for (size_t rank = 0; rank < parts_.size(); ++rank) {
      // Each rank has the whole bias; one of them adds it.
      const Vector* added = rank == 0 ? bias(parts_[rank]) : nullptr;
      const Numbers partial = Product(*matrix(parts_[rank]), added, Part(x, ranges[rank]));
      ASSERT_EQ(partial.size(), want.size());
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += partial[i];
    }
    double squares = 0;
    for (const float number : want) squares += double{number} * number;
    const double size = std::sqrt(squares / static_cast<double>(want.size()));
    for (size_t i = 0; i < sum.size(); ++i) EXPECT_NEAR(sum[i], want[i], 1e-5 * size) << i;
  }

  void CheckAttention(int32_t layer) {
    const auto weights = [layer](const DecoderWeights& w) -> const LayerWeights& {
      return w.layers[layer];
    };
    const int64_t dim = spec_.head_dim;
    const Numbers x = Input(spec_.hidden);
    const Numbers want = Product(*weights(whole_).qkv, weights(whole_).qkv_bias.get(), x);
    std::vector<IndexRange> columns;
    for (size_t rank = 0; rank < parts_.size(); ++rank) {
      const IndexRange q = *RowsOfHeads(slices_[rank].heads, dim);
      const IndexRange kv = *RowsOfHeads(slices_[rank].kv_heads, dim);
      const int64_t first_k = spec_.heads * dim;
      const int64_t first_v = first_k + spec_.kv_heads * dim;
      Numbers expected = Part(want, q);
      Append(expected, Part(want, {first_k + kv.begin, first_k + kv.end}));
      Append(expected, Part(want, {first_v + kv.begin, first_v + kv.end}));
      const LayerWeights& part = weights(parts_[rank]);
      EXPECT_EQ(Product(*part.qkv, part.qkv_bias.get(), x), expected) << "rank " << rank;
      columns.push_back(q);
    }
    CheckColumns(
        columns,
        [&](const DecoderWeights& w) { return weights(w).attention_output.get(); },
        [&](const DecoderWeights& w) { return weights(w).attention_output_bias.get(); });
  }

  void CheckDense(int32_t layer) {
    CheckGated([=](const DecoderWeights& w) { return w.layers[layer].gate_up.get(); },
               [=](const DecoderWeights& w) { return w.layers[layer].gate_up_bias.get(); });
    std::vector<IndexRange> columns;
    for (const DecoderSlice& slice : slices_) columns.push_back(*slice.intermediate);
    CheckColumns(
        columns,
        [=](const DecoderWeights& w) { return w.layers[layer].down.get(); },
        [=](const DecoderWeights& w) { return w.layers[layer].down_bias.get(); });
  }

  void CheckExperts(int32_t layer) {
    const bool biases = spec_.moe.biases;
    std::vector<IndexRange> columns;
    for (const DecoderSlice& slice : slices_) columns.push_back(*slice.expert_intermediate);
    const Numbers x = Input(spec_.hidden);
    for (const DecoderWeights& part : parts_) {
      EXPECT_EQ(Product(*part.layers[layer].router, nullptr, x),
                Product(*whole_.layers[layer].router, nullptr, x));
    }
    for (int32_t expert = 0; expert < spec_.moe.experts; ++expert) {
      SCOPED_TRACE(fmt::format("expert {}", expert));
      CheckGated(
          [=](const DecoderWeights& w) { return w.layers[layer].expert_gate_up[expert].get(); },
          [=](const DecoderWeights& w) {
            return biases ? w.layers[layer].expert_gate_up_bias[expert].get() : nullptr;
          });
      CheckColumns(
          columns,
          [=](const DecoderWeights& w) { return w.layers[layer].expert_down[expert].get(); },
          [=](const DecoderWeights& w) {
            return biases ? w.layers[layer].expert_down_bias[expert].get() : nullptr;
          });
    }
  }

  const ModelSpec& spec_;
  CpuDevice device_;
  std::unique_ptr<Ops> ops_;
  uint64_t seed_ = 0;
  DecoderWeights whole_;
  std::vector<DecoderSlice> slices_;
  std::vector<DecoderWeights> parts_;
};

OpenedModel Open(const std::string& family) {
  auto model = OpenModel(std::string(BATON_TEST_DATA) + "/tiny/" + family);
  BATON_CHECK(model.ok(), "{}", Message(model.status()));
  return *std::move(model);
}

class SlicedModel : public testing::TestWithParam<std::string> {};

TEST_P(SlicedModel, MultipliesToThePartsOfTheWhole) {
  const OpenedModel model = Open(GetParam());
  for (const int64_t ranks : {1, 2, 4, 8}) {
    SCOPED_TRACE(fmt::format("{} ranks", ranks));
    Slices(model.spec, *model.weights, ranks).CheckAll();
    Slices(model.spec, DummyWeights(4), ranks).CheckAll();
  }
}

INSTANTIATE_TEST_SUITE_P(
    Families,
    SlicedModel,
    testing::Values(
        "glm4", "gpt_oss", "llama_gqa", "llama_mqa_tied", "mixtral", "qwen2", "qwen3_moe"),
    [](const auto& test) { return test.param; });

// Each of two ranks gets two heads: 256 columns of the attention output, a block of every type.
ModelSpec SpecForBlocks() {
  return SmallSpec(/*head_dim=*/128);
}

class SlicedBlocks : public testing::TestWithParam<DType> {};

TEST_P(SlicedBlocks, MultiplyToThePartsOfTheWhole) {
  const DummyWeights vectors(7);
  const auto bytes =
      WriteModel(SpecForBlocks(), RandomBlocks(GetParam(), 11), VectorsOf(vectors)).Finish();
  const auto spec = SpecOf(bytes);
  const auto weights = WeightsOf(bytes);
  ASSERT_TRUE(spec.ok() && weights.ok());
  Slices(*spec, **weights, 2).CheckAll();
}

INSTANTIATE_TEST_SUITE_P(Types,
                         SlicedBlocks,
                         testing::ValuesIn(kBlockTypes.begin(), kBlockTypes.end()),
                         [](const auto& test) { return std::string(Name(test.param)); });

Status LoadSlice(const ModelSpec& spec, const WeightSource& source, const DecoderSlice& slice) {
  CpuDevice device;
  const auto ops = MakeCpuOps(device, {});
  BATON_CHECK(ops.ok(), "{}", Message(ops.status()));
  return LoadDecoderWeights(spec, source, **ops, {.slice = slice}).status();
}

TEST(DecoderSlice, ThatCutsABlockIsRefusedWithTheNameOfTheTensor) {
  const DummyWeights vectors(7);
  const auto bytes =
      WriteModel(SpecForBlocks(), RandomBlocks(DType::kQ4_K, 11), VectorsOf(vectors)).Finish();
  const auto spec = SpecOf(bytes);
  const auto weights = WeightsOf(bytes);
  ASSERT_TRUE(spec.ok() && weights.ok());
  DecoderSlice slice;
  slice.intermediate = IndexRange{128, 256};
  const Status status = LoadSlice(*spec, **weights, slice);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(Message(status),
            "test.gguf: tensor blk.0.ffn_down.weight: columns [128, 256) must begin and end at "
            "multiples of 256, the block of q4_K");
}

TEST(DecoderSlice, HasOnlyItsExperts) {
  const OpenedModel model = Open("qwen3_moe");
  const ModelSpec& spec = model.spec;
  CpuDevice device;
  const auto ops = MakeCpuOps(device, {});
  ASSERT_TRUE(ops.ok());
  const auto whole = LoadDecoderWeights(spec, *model.weights, **ops);
  DecoderSlice slice;
  slice.experts = IndexRange{3, 5};
  const auto part = LoadDecoderWeights(spec, *model.weights, **ops, {.slice = slice});
  ASSERT_TRUE(whole.ok() && part.ok());
  const LayerWeights& all = whole->layers.back();
  const LayerWeights& some = part->layers.back();
  ASSERT_EQ(some.expert_gate_up.size(), 2u);
  ASSERT_EQ(some.expert_down.size(), 2u);
  EXPECT_EQ(some.router->rows(), spec.moe.experts);
  const Numbers x = parity::RandomFloats(static_cast<size_t>(spec.hidden), 1);
  const DeviceTensor in(**ops, 1, spec.hidden, x);
  for (size_t i = 0; i < 2; ++i) {
    std::vector<Numbers> products;
    for (const Matrix* gate_up : {some.expert_gate_up[i].get(), all.expert_gate_up[3 + i].get()}) {
      const DeviceTensor out(**ops, DType::kF32, 1, spec.moe.intermediate);
      parity::InStep(**ops,
                     [&] { (*ops)->MatMulSiluMul(in.view(), *gate_up, nullptr, out.view()); });
      products.push_back(out.Read());
    }
    EXPECT_EQ(products[0], products[1]);
  }
}

TEST(DecoderSlice, HasTheKvScalesOfItsHeads) {
  for (const char* const family : {"llama_gqa", "qwen2", "qwen3_moe"}) {
    SCOPED_TRACE(family);
    const OpenedModel model = Open(family);
    const auto all = ComputeKvScales(model.spec, *model.weights, 1, 1.0f);
    const auto part = ComputeKvScales(model.spec, *model.weights, 1, 1.0f, IndexRange{1, 2});
    ASSERT_TRUE(all.ok() && part.ok());
    ASSERT_EQ(all->size(), 4u);
    EXPECT_EQ(*part, (Numbers{all->at(1), all->at(3)}));
  }
}

TEST(DecoderSlice, ErrorsNameTheRangeAndTheValidValues) {
  const OpenedModel dense = Open("llama_gqa");
  const OpenedModel experts = Open("mixtral");
  const auto error = [](const OpenedModel& model, const DecoderSlice& slice) {
    const Status status = LoadSlice(model.spec, *model.weights, slice);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    return std::string(Message(status));
  };
  const std::string within = " must be a range that is not empty within ";
  EXPECT_EQ(error(dense, {.heads = IndexRange{4, 9}}),
            "decoder slice: heads [4, 9)" + within + "[0, 8)");
  EXPECT_EQ(error(dense, {.kv_heads = IndexRange{2, 3}}),
            "decoder slice: KV heads [2, 3)" + within + "[0, 2)");
  EXPECT_EQ(error(dense, {.intermediate = IndexRange{80, 80}}),
            "decoder slice: intermediate rows [80, 80)" + within + "[0, 160)");
  EXPECT_EQ(error(dense, {.vocab = IndexRange{-1, 4}}),
            "decoder slice: vocabulary rows [-1, 4)" + within + "[0, 512)");
  EXPECT_EQ(error(experts, {.experts = IndexRange{4, 9}}),
            "decoder slice: experts [4, 9)" + within + "[0, 8)");
  EXPECT_EQ(error(experts, {.expert_intermediate = IndexRange{0, 49}}),
            "decoder slice: intermediate rows of experts [0, 49)" + within + "[0, 48)");
}

// Attention over a slice must use the KV heads that the model's query heads use.
TEST(DecoderSlice, QueryHeadsNeedTheirKvHeads) {
  const OpenedModel model = Open("llama_gqa");  // 8 heads, 2 KV heads
  struct Heads {
    IndexRange heads;
    IndexRange kv_heads;
    bool valid;
  };
  for (const Heads& one : {Heads{{0, 4}, {0, 1}, true},
                           Heads{{4, 8}, {1, 2}, true},
                           Heads{{6, 7}, {1, 2}, true},
                           Heads{{2, 6}, {0, 2}, true},
                           Heads{{0, 4}, {1, 2}, false},
                           Heads{{2, 6}, {0, 1}, false},
                           Heads{{0, 4}, {0, 2}, false},
                           Heads{{3, 6}, {0, 2}, false},
                           Heads{{0, 1}, {0, 2}, false}}) {
    SCOPED_TRACE(fmt::format("heads [{}, {})", one.heads.begin, one.heads.end));
    DecoderSlice slice;
    slice.heads = one.heads;
    slice.kv_heads = one.kv_heads;
    EXPECT_EQ(slice.Validate(model.spec).ok(), one.valid);
  }
  EXPECT_EQ(Message(DecoderSlice{.heads = IndexRange{0, 4}}.Validate(model.spec)),
            "decoder slice: heads [0, 4) cannot use KV heads [0, 2); head h of the model uses KV "
            "head h / 4, and each KV head of a slice must have equally many of its heads");
}

}  // namespace
}  // namespace baton
