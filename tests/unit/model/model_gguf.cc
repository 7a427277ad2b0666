#include "tests/unit/model/model_gguf.h"

#include <random>
#include <string>

#include "common/base/check.h"
#include "common/model/file_weights.h"
#include "common/model/gguf_config.h"
#include "common/model/weight_names.h"
#include "kernels/dequantize.h"

namespace baton {
namespace {

std::string Architecture(ModelFamily family) {
  switch (family) {
    case ModelFamily::kQwen2:
      return "qwen2";
    case ModelFamily::kQwen3:
      return "qwen3";
    case ModelFamily::kQwen3Moe:
      return "qwen3moe";
    case ModelFamily::kGlm4:
      return "glm4";
    case ModelFamily::kQwen2Moe:
      return "qwen2moe";
    case ModelFamily::kGranite:
    case ModelFamily::kGraniteMoe:
    case ModelFamily::kOlmo2:
    case ModelFamily::kPhi3:
    case ModelFamily::kSeedOss:
    case ModelFamily::kSmolLm3:
      return std::string(Name(family));
    default:
      return "llama";
  }
}

// Whether llama.cpp permutes the rows of q and k, so that adjacent ones are rotated together.
bool PermutesHeads(ModelFamily family) {
  const std::string name = Architecture(family);
  return name == "llama" || name == "granite" || name == "granitemoe" || name == "smollm3";
}

void WriteKeys(const ModelSpec& spec, GgufWriter& to) {
  const std::string name = Architecture(spec.family);
  const auto number = [&](const std::string& key, int64_t value) {
    to.SetUint32(name + "." + key, static_cast<uint32_t>(value));
  };
  to.SetString("general.architecture", name);
  to.SetString("general.name", "made by a test");
  number("block_count", spec.layer_count());
  number("context_length", spec.context_length);
  number("embedding_length", spec.hidden);
  const bool mixtral =
      spec.family == ModelFamily::kMixtral || spec.family == ModelFamily::kGraniteMoe;
  number("feed_forward_length", mixtral ? spec.moe.intermediate : spec.intermediate);
  number("attention.head_count", spec.heads);
  number("attention.head_count_kv", spec.kv_heads);
  number("attention.key_length", spec.head_dim);
  number("attention.value_length", spec.head_dim);
  if (spec.rope.rotary_dim > 0) number("rope.dimension_count", spec.rope.rotary_dim);
  to.SetFloat(name + ".attention.layer_norm_rms_epsilon", spec.norm_epsilon);
  to.SetFloat(name + ".rope.freq_base", static_cast<float>(spec.rope.theta));
  if (spec.moe.experts > 0) {
    number("expert_count", spec.moe.experts);
    number("expert_used_count", spec.moe.experts_per_token);
    if (!mixtral) number("expert_feed_forward_length", spec.moe.intermediate);
    if (spec.moe.shared_intermediate > 0) {
      number("expert_shared_feed_forward_length", spec.moe.shared_intermediate);
    }
  }
  if (spec.residual_scale != 1) {
    to.SetFloat(name + ".embedding_scale", spec.embedding_scale);
    to.SetFloat(name + ".residual_scale", spec.residual_scale);
    to.SetFloat(name + ".attention.scale", spec.attention_scale);
    to.SetFloat(name + ".logit_scale", 1 / spec.logit_scale);
  }
  if (spec.family == ModelFamily::kPhi3) {
    number("attention.sliding_window", spec.layers[0].window);
  }
  to.SetUint32("tokenizer.ggml.eos_token_id", 2);
}

struct TensorWriter {
  GgufWriter& to;
  const MatrixMaker& matrix;
  const VectorMaker& vector;
  bool split_experts = false;
  Naming naming = {};

  void Matrix(const WeightId& id, int64_t rows, int64_t cols) const {
    const MatrixBytes made = matrix(id, rows, cols);
    const int64_t shape[] = {rows, cols};
    to.AddTensor(NameOf(id, naming).tensor, made.dtype, shape, made.bytes);
  }
  // Matrices that are tensors of their own, or one behind the other in one tensor.
  void Joined(std::initializer_list<WeightKind> kinds,
              int32_t layer,
              std::initializer_list<int64_t> rows,
              int64_t cols) const {
    MatrixBytes all;
    int64_t total = 0;
    std::string tensor;
    auto count = rows.begin();
    for (const WeightKind kind : kinds) {
      const TensorName name = NameOf({kind, layer}, naming);
      const MatrixBytes one = matrix({kind, layer}, *count, cols);
      const int64_t shape[] = {*count, cols};
      if (name.parts == 1) to.AddTensor(name.tensor, one.dtype, shape, one.bytes);
      all.dtype = one.dtype;
      all.bytes.insert(all.bytes.end(), one.bytes.begin(), one.bytes.end());
      total += *count++;
      if (name.parts > 1) tensor = name.tensor;
    }
    const int64_t shape[] = {total, cols};
    if (!tensor.empty()) to.AddTensor(tensor, all.dtype, shape, all.bytes);
  }
  void Experts(WeightKind kind, int32_t layer, int32_t experts, int64_t rows, int64_t cols) const {
    MatrixBytes all;
    for (int32_t expert = 0; expert < experts; ++expert) {
      const MatrixBytes one = matrix({kind, layer, expert}, rows, cols);
      if (split_experts) {
        const int64_t shape[] = {rows, cols};
        const TensorName name = NameOf({kind, layer, expert}, naming);
        to.AddTensor(name.slice, one.dtype, shape, one.bytes);
      }
      all.dtype = one.dtype;
      all.bytes.insert(all.bytes.end(), one.bytes.begin(), one.bytes.end());
    }
    if (split_experts) return;
    const int64_t shape[] = {experts, rows, cols};
    to.AddTensor(NameOf({kind, layer, 0}, naming).tensor, all.dtype, shape, all.bytes);
  }
  // A matrix of one row, as a vector.
  void Row(const WeightId& id, int64_t cols) const {
    const MatrixBytes made = matrix(id, 1, cols);
    const int64_t shape[] = {cols};
    to.AddTensor(NameOf(id, naming).tensor, made.dtype, shape, made.bytes);
  }
  void Vector(const WeightId& id, int64_t size) const {
    const std::vector<float> values = vector(id, size);
    const int64_t shape[] = {size};
    to.AddTensor(NameOf(id, naming).tensor, DType::kF32, shape, std::as_bytes(std::span(values)));
  }
};

void WriteAttention(const ModelSpec& spec, int32_t layer, const TensorWriter& write) {
  const int64_t q = int64_t{spec.heads} * spec.head_dim;
  const int64_t kv = int64_t{spec.kv_heads} * spec.head_dim;
  if (spec.input_norms()) write.Vector({WeightKind::kAttentionNorm, layer}, spec.hidden);
  write.Joined(
      {WeightKind::kQuery, WeightKind::kKey, WeightKind::kValue}, layer, {q, kv, kv}, spec.hidden);
  write.Matrix({WeightKind::kAttentionOutput, layer}, spec.hidden, q);
  if (spec.post_norms()) write.Vector({WeightKind::kAttentionPostNorm, layer}, spec.hidden);
  if (spec.qkv_bias) {
    write.Vector({WeightKind::kQueryBias, layer}, q);
    write.Vector({WeightKind::kKeyBias, layer}, kv);
    write.Vector({WeightKind::kValueBias, layer}, kv);
  }
  if (spec.qk_norm != QkNorm::kNone) {
    const bool whole = spec.qk_norm == QkNorm::kProjection;
    write.Vector({WeightKind::kQueryNorm, layer}, whole ? q : spec.head_dim);
    write.Vector({WeightKind::kKeyNorm, layer}, whole ? kv : spec.head_dim);
  }
}

void WriteFeedForward(const ModelSpec& spec, int32_t layer, const TensorWriter& write) {
  if (spec.input_norms()) write.Vector({WeightKind::kFeedForwardNorm, layer}, spec.hidden);
  if (spec.post_norms()) write.Vector({WeightKind::kFeedForwardPostNorm, layer}, spec.hidden);
  if (spec.layers[layer].moe) {
    const MoeSpec& moe = spec.moe;
    write.Matrix({WeightKind::kRouter, layer}, moe.experts, spec.hidden);
    write.Experts(WeightKind::kExpertGate, layer, moe.experts, moe.intermediate, spec.hidden);
    write.Experts(WeightKind::kExpertUp, layer, moe.experts, moe.intermediate, spec.hidden);
    write.Experts(WeightKind::kExpertDown, layer, moe.experts, spec.hidden, moe.intermediate);
    if (moe.shared_intermediate == 0) return;
    write.Matrix({WeightKind::kSharedGate, layer}, moe.shared_intermediate, spec.hidden);
    write.Matrix({WeightKind::kSharedUp, layer}, moe.shared_intermediate, spec.hidden);
    write.Matrix({WeightKind::kSharedDown, layer}, spec.hidden, moe.shared_intermediate);
    write.Row({WeightKind::kSharedExpertGate, layer}, spec.hidden);
    return;
  }
  write.Joined({WeightKind::kGate, WeightKind::kUp},
               layer,
               {spec.intermediate, spec.intermediate},
               spec.hidden);
  write.Matrix({WeightKind::kDown, layer}, spec.hidden, spec.intermediate);
}

// Row 2i + j of a permuted head is row j·(dim/2) + i of the checkpoint.
std::vector<std::byte> PermuteHeads(std::span<const std::byte> rows,
                                    size_t row_bytes,
                                    int64_t dim) {
  std::vector<std::byte> permuted(rows.size());
  const auto count = static_cast<int64_t>(rows.size() / row_bytes);
  for (int64_t row = 0; row < count; ++row) {
    const int64_t in_head = row % dim;
    const int64_t from = row - in_head + (in_head % 2) * (dim / 2) + in_head / 2;
    std::memcpy(permuted.data() + row * row_bytes, rows.data() + from * row_bytes, row_bytes);
  }
  return permuted;
}

// A random half-precision number in [2^exponent, 2^(exponent + 1)).
uint16_t RandomScale(std::mt19937_64& random, int exponent) {
  return static_cast<uint16_t>((15 + exponent) << 10 | (random() & 1023));
}

void SetScales(DType dtype, std::byte* block, std::mt19937_64& random) {
  const auto put = [&](size_t offset, int exponent, bool negative) {
    const auto half =
        static_cast<uint16_t>(RandomScale(random, exponent) | (negative ? 0x8000 : 0));
    std::memcpy(block + offset, &half, sizeof(half));
  };
  switch (dtype) {
    case DType::kQ8_0:
      return put(0, -11, false);
    case DType::kQ4_0:
      return put(0, -7, random() % 2 == 0);
    case DType::kQ4_1:
      put(0, -7, false);
      return put(2, -4, true);
    case DType::kQ5_0:
      return put(0, -8, random() % 2 == 0);
    case DType::kQ5_1:
      put(0, -8, false);
      return put(2, -4, true);
    case DType::kQ4_K:
      put(0, -12, false);
      return put(2, -9, false);
    case DType::kQ5_K:
      put(0, -13, false);
      return put(2, -9, false);
    case DType::kQ6_K:
      return put(208, -14, false);
    case DType::kIQ4_NL:
      return put(0, -11, random() % 2 == 0);
    case DType::kIQ4_XS:
      return put(0, -14, random() % 2 == 0);
    case DType::kQ2_K:
      put(80, -9, false);
      return put(82, -9, false);
    case DType::kQ3_K:
      return put(108, -11, false);
    case DType::kMxfp4:
      *block = static_cast<std::byte>(119 + random() % 4);
      return;
    default:
      BATON_CHECK(false, "{} has no blocks", Name(dtype));
  }
}

}  // namespace

ModelSpec SmallSpec(int32_t head_dim) {
  ModelSpec spec;
  spec.hidden = 256;
  spec.heads = 4;
  spec.kv_heads = 2;
  spec.head_dim = head_dim;
  spec.intermediate = 512;
  spec.vocab = 96;
  spec.context_length = 512;
  spec.rope.rotary_dim = head_dim;
  spec.layers.resize(2);
  spec.eos = {2};
  return spec;
}

GgufWriter WriteModel(const ModelSpec& spec,
                      const MatrixMaker& matrix,
                      const VectorMaker& vector,
                      bool split_experts) {
  GgufWriter writer;
  WriteKeys(spec, writer);
  const TensorWriter write{writer, matrix, vector, split_experts, GgufNames(spec)};
  write.Matrix({WeightKind::kEmbedding}, spec.vocab, spec.hidden);
  if (spec.rope.file_factors) write.Vector({WeightKind::kRopeFactors}, spec.rope.rotary_dim / 2);
  for (int32_t layer = 0; layer < spec.layer_count(); ++layer) {
    WriteAttention(spec, layer, write);
    WriteFeedForward(spec, layer, write);
  }
  write.Vector({WeightKind::kOutputNorm}, spec.hidden);
  if (!spec.tied_head) write.Matrix({WeightKind::kHead}, spec.vocab, spec.hidden);
  return writer;
}

MatrixMaker FloatsOf(const WeightSource& source, const ModelSpec& spec) {
  return [&source, &spec](const WeightId& id, int64_t rows, int64_t cols) {
    const auto view = source.GetMatrix(id, rows, cols);
    BATON_CHECK(view.ok(), "{}", Message(view.status()));
    const size_t row_bytes = RowBytes(view->dtype, cols);
    MatrixBytes made;
    made.dtype = view->dtype;
    if (view->data != nullptr) {
      made.bytes.assign(view->data, view->data + rows * row_bytes);
    } else {
      std::vector<uint16_t> drawn(static_cast<size_t>(rows * cols));
      DrawMatrix(*view, drawn);
      const auto bytes = std::as_bytes(std::span(drawn));
      made.bytes.assign(bytes.begin(), bytes.end());
    }
    if (PermutesHeads(spec.family) &&
        (id.kind == WeightKind::kQuery || id.kind == WeightKind::kKey)) {
      made.bytes = PermuteHeads(made.bytes, row_bytes, spec.head_dim);
    }
    return made;
  };
}

VectorMaker VectorsOf(const WeightSource& source) {
  return [&source](const WeightId& id, int64_t size) {
    const auto values = source.GetVector(id, size);
    BATON_CHECK(values.ok(), "{}", Message(values.status()));
    return *values;
  };
}

MatrixMaker RandomBlocks(DType dtype, uint64_t seed) {
  return [dtype, seed](const WeightId& id, int64_t rows, int64_t cols) {
    std::mt19937_64 random(seed + static_cast<uint64_t>(id.kind) * 1000 +
                           static_cast<uint64_t>(id.layer + 1));
    MatrixBytes made;
    made.dtype = dtype;
    made.bytes.resize(rows * RowBytes(dtype, cols));
    for (std::byte& byte : made.bytes) byte = static_cast<std::byte>(random());
    const size_t block = ShapeOf(dtype).bytes;
    for (size_t at = 0; at < made.bytes.size(); at += block) {
      SetScales(dtype, made.bytes.data() + at, random);
    }
    return made;
  };
}

MatrixMaker Dequantized(const MatrixMaker& maker) {
  return [maker](const WeightId& id, int64_t rows, int64_t cols) {
    const MatrixBytes from = maker(id, rows, cols);
    MatrixBytes made;
    std::vector<float> values(static_cast<size_t>(rows * cols));
    Dequantize(from.dtype, from.bytes, values);
    const auto bytes = std::as_bytes(std::span(values));
    made.bytes.assign(bytes.begin(), bytes.end());
    return made;
  };
}

StatusOr<std::unique_ptr<WeightSource>> WeightsOf(const std::vector<std::byte>& bytes) {
  BATON_ASSIGN_OR_RETURN(auto gguf, GgufFile::Parse("test.gguf", bytes));
  BATON_ASSIGN_OR_RETURN(const ModelSpec spec, SpecFromGguf(*gguf));
  return std::make_unique<FileWeights>(std::move(gguf), GgufNames(spec));
}

StatusOr<ModelSpec> SpecOf(const std::vector<std::byte>& bytes) {
  BATON_ASSIGN_OR_RETURN(const auto gguf, GgufFile::Parse("test.gguf", bytes));
  return SpecFromGguf(*gguf);
}

}  // namespace baton
