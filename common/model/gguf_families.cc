#include "common/model/gguf_families.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "common/model/gguf_config.h"
#include "common/model/gguf_recurrent.h"
#include "kernels/dequantize.h"

namespace baton {
namespace {

// Which layers have the window: the file lists them. Older files do not: then all but each fourth
// one have it.
Status ReadWindowLayers(GgufFields& fields, ModelSpec& spec) {
  constexpr std::string_view kPattern = "attention.sliding_window_pattern";
  constexpr int32_t kInterval = 4;
  const int32_t window = spec.layers.front().window;
  std::vector<bool> windows;
  for (int32_t i = 0; i < spec.layer_count(); ++i) windows.push_back((i + 1) % kInterval != 0);
  if (fields.Has(kPattern)) {
    BATON_ASSIGN_OR_RETURN(windows, fields.Flags(kPattern, spec.layers.size()));
  }
  for (size_t i = 0; i < windows.size(); ++i) spec.layers[i].window = windows[i] ? window : 0;
  return OkStatus();
}

void RotateOnlyWindows(ModelSpec& spec) {
  for (LayerSpec& layer : spec.layers) layer.rotary = layer.window > 0;
}

Status ReadCohere(GgufFields& fields, ModelSpec& spec) {
  spec.norm = NormKind::kLayer;
  spec.residual = ResidualForm::kParallel;
  if (spec.qk_norm == QkNorm::kHead) spec.qk_norm = QkNorm::kHeadLayer;
  spec.logit_scale =
      static_cast<float>(fields.NumberOr("logit_scale", 0.0625, 1e-6, ModelSpec::kMaxScale));
  BATON_RETURN_IF_ERROR(fields.status());
  if (spec.family != ModelFamily::kCohere2) return OkStatus();
  BATON_RETURN_IF_ERROR(ReadWindowLayers(fields, spec));
  RotateOnlyWindows(spec);
  return OkStatus();
}

// Layers whose files have one norm add attention and the network in parallel.
Status ReadStableLm(const GgufFile& gguf, ModelSpec& spec) {
  spec.norm = NormKind::kLayerWithBias;
  if (!HasTensor(gguf, WeightKind::kFeedForwardNorm, 0)) spec.residual = ResidualForm::kParallel;
  if (spec.qk_norm == QkNorm::kNone) return OkStatus();
  return MakeStatus(StatusCode::kUnimplemented,
                    "{}: tensor blk.0.attn_q_norm.weight: norms of heads are not supported",
                    gguf.path());
}

// The files have biases of q, k and v in one tensor (weight_names.cc).
Status ReadGptNeox(GgufFields& fields, ModelSpec& spec) {
  spec.norm = NormKind::kLayerWithBias;
  spec.feed_forward = FeedForward::kGelu;
  spec.qkv_bias = true;
  const bool parallel = fields.BoolOr("use_parallel_residual", true);
  spec.residual = parallel ? ResidualForm::kParallelTwoNorms : ResidualForm::kPreNorm;
  return fields.status();
}

// The files have neither the size of chunks nor the scaling of queries, nor do they say which
// layers rotate. As in llama.cpp, these are those of the published models, unless the files have a
// window of 0.
Status ReadLlama4(GgufFields& fields, ModelSpec& spec) {
  constexpr int32_t kChunk = 8192;
  constexpr int32_t kInterval = 4;  // the last layer of each interval reads all tokens
  constexpr int32_t kExpertsOfMaverick = 128;
  const bool maverick =
      fields.IntOr("expert_count", 0, 0, ModelSpec::kMaxExperts) == kExpertsOfMaverick;
  if (!maverick) spec.qk_norm = QkNorm::kUnitAfterRope;
  const bool chunked = !fields.Has("attention.sliding_window") || spec.layers.front().window > 0;
  if (chunked) spec.query_scaling = {.slope = 0.1f, .step = 8192};
  for (int32_t i = 0; i < spec.layer_count(); ++i) {
    LayerSpec& layer = spec.layers[i];
    layer.window = 0;
    layer.rotary = !chunked || (i + 1) % kInterval != 0;
    if (chunked && layer.rotary) layer.chunk = kChunk;
  }
  return fields.status();
}

// In models with windows, only layers with one rotate.
Status ReadExaone4(GgufFields& fields, ModelSpec& spec) {
  spec.residual = ResidualForm::kPostNorm;
  if (spec.layers.front().window == 0) return OkStatus();
  BATON_RETURN_IF_ERROR(ReadWindowLayers(fields, spec));
  RotateOnlyWindows(spec);
  return OkStatus();
}

// OLMo 3 has the architecture of OLMo 2, and windows, whose rotary embedding has no scaling.
Status ReadOlmo3(GgufFields& fields, ModelSpec& spec) {
  if (spec.layers.front().window == 0) return OkStatus();
  spec.family = ModelFamily::kOlmo3;
  BATON_RETURN_IF_ERROR(ReadWindowLayers(fields, spec));
  RopeSpec& rope = spec.window_rope.emplace();
  rope.theta = spec.rope.theta;
  rope.rotary_dim = spec.rope.rotary_dim;
  rope.pairing = spec.rope.pairing;
  return OkStatus();
}

StatusOr<std::vector<double>> FactorsOf(const FileTensor& tensor, int32_t count) {
  if (tensor.dtype != DType::kF32 || tensor.shape != std::vector<int64_t>{count}) {
    return InvalidArgument("{}: tensor {} has shape {}; expected {} numbers of f32",
                           tensor.file,
                           tensor.name,
                           ShapeText(tensor.shape),
                           count);
  }
  std::vector<float> values(static_cast<size_t>(count));
  Dequantize(tensor.dtype, tensor.bytes, values);
  const auto wrong = std::ranges::find_if(values, [](float value) { return !(value > 0); });
  if (wrong != values.end()) {
    return InvalidArgument(
        "{}: tensor {} has {}; it must be greater than 0", tensor.file, tensor.name, *wrong);
  }
  return std::vector<double>(values.begin(), values.end());
}

// The files of Phi-3 with LongRoPE have the factors as two tensors. As in Hugging Face files, the
// context length of the model decides which ones hold.
Status ReadLongRope(GgufFields& fields, const GgufFile& gguf, ModelSpec& spec) {
  RopeSpec& rope = spec.rope;
  rope.original_context = fields.IntOr(
      "rope.scaling.original_context_length", spec.context_length, 2, ModelSpec::kMaxContext);
  BATON_RETURN_IF_ERROR(fields.status());
  const bool is_long = spec.context_length > rope.original_context;
  const auto find = [&gguf](std::string_view name) {
    return std::ranges::find(gguf.tensors(), name, &FileTensor::name);
  };
  constexpr std::string_view kLong = "rope_factors_long.weight";
  constexpr std::string_view kShort = "rope_factors_short.weight";
  const auto none = gguf.tensors().end();
  if (find(kLong) == none && find(kShort) == none) return OkStatus();
  const auto found = find(is_long ? kLong : kShort);
  if (found == none) {
    return InvalidArgument("{}: tensor {} is missing", gguf.path(), is_long ? kLong : kShort);
  }
  BATON_ASSIGN_OR_RETURN(rope.factors, FactorsOf(*found, rope.rotary_dim / 2));
  rope.scaling = RopeScaling::kLong;
  rope.factor = std::max(1.0, static_cast<double>(spec.context_length) / rope.original_context);
  const double magnitude = std::sqrt(1 + std::log(rope.factor) / std::log(rope.original_context));
  rope.attention_factor = fields.NumberOr("rope.scaling.attn_factor", magnitude, 1e-3, 1e3);
  return fields.status();
}

}  // namespace

Status ReadFamilyOfGguf(GgufFields& fields, const GgufFile& gguf, ModelSpec& spec) {
  switch (spec.family) {
    case ModelFamily::kCohere:
    case ModelFamily::kCohere2:
      return ReadCohere(fields, spec);
    case ModelFamily::kExaone4:
      return ReadExaone4(fields, spec);
    case ModelFamily::kOlmo2:
      return ReadOlmo3(fields, spec);
    case ModelFamily::kPhi3:
      return ReadLongRope(fields, gguf, spec);
    case ModelFamily::kStableLm:
      return ReadStableLm(gguf, spec);
    case ModelFamily::kPhi:
      spec.norm = NormKind::kLayerWithBias;
      spec.residual = ResidualForm::kParallel;
      spec.feed_forward = FeedForward::kGeluTanh;
      return OkStatus();
    case ModelFamily::kGptNeox:
      return ReadGptNeox(fields, spec);
    case ModelFamily::kLlama4:
      return ReadLlama4(fields, spec);
    case ModelFamily::kHunyuan:
    case ModelFamily::kHunyuanMoe:
      if (spec.qk_norm == QkNorm::kHead) spec.qk_norm = QkNorm::kHeadAfterRope;
      return OkStatus();
    case ModelFamily::kQwen3Next:
    case ModelFamily::kQwen35:
    case ModelFamily::kQwen35Moe:
      return ReadDeltaNetsOfGguf(fields, spec);
    case ModelFamily::kNemotronH:
      spec.feed_forward = FeedForward::kSquaredRelu;
      return spec.state_layers() > 0 ? ReadStateSpaceOfGguf(fields, gguf, spec) : OkStatus();
    case ModelFamily::kJamba:
      return ReadSelectiveScanOfGguf(fields, gguf, spec);
    case ModelFamily::kKimiLinear:
      return ReadKimiDeltaOfGguf(fields, spec);
    case ModelFamily::kFalconH1:
    case ModelFamily::kMamba2:
      return ReadStateSpaceOfGguf(fields, gguf, spec);
    default:
      return OkStatus();
  }
}

}  // namespace baton
