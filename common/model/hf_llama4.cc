#include "common/model/hf_llama4.h"

#include <algorithm>
#include <cstddef>
#include <vector>

namespace baton {
namespace {

// layer_types lists the kinds of the layers. Without it, those that rotate attend within chunks.
StatusOr<std::vector<bool>> ReadChunkedLayers(JsonFields& fields, const ModelSpec& spec) {
  if (fields.Has("layer_types")) {
    return fields.LayersOfKind(
        "layer_types", spec.layers.size(), "chunked_attention", "full_attention");
  }
  std::vector<bool> chunked;
  for (const LayerSpec& layer : spec.layers) chunked.push_back(layer.rotary);
  return chunked;
}

}  // namespace

Status ReadLlama4Attention(JsonFields& fields, ModelSpec& spec) {
  BATON_ASSIGN_OR_RETURN(const std::vector<bool> chunked, ReadChunkedLayers(fields, spec));
  const auto first = std::ranges::find(chunked, true);
  if (first != chunked.end() && fields.IsNull("attention_chunk_size")) {
    return InvalidArgument("{}: layer {} is chunked_attention, but attention_chunk_size is null",
                           fields.file(),
                           first - chunked.begin());
  }
  const int32_t chunk = fields.IntOr("attention_chunk_size", 8192, 1, ModelSpec::kMaxContext);
  for (size_t i = 0; i < chunked.size(); ++i) spec.layers[i].chunk = chunked[i] ? chunk : 0;

  // Older files have a number, which is true unless it is 0.
  constexpr std::string_view kTuning = "attn_temperature_tuning";
  const bool tuned = fields.IsNumber(kTuning) ? fields.Number(kTuning, 0, ModelSpec::kMaxScale) != 0
                                              : fields.BoolOr(kTuning, true);
  const double slope = fields.NumberOr("attn_scale", 0.1, 0, ModelSpec::kMaxScale);
  const double step = fields.NumberOr("floor_scale", 8192, 1, ModelSpec::kMaxContext);
  if (step != static_cast<int32_t>(step)) {
    return MakeStatus(StatusCode::kUnimplemented,
                      "{}: floor_scale is {}; only whole numbers are supported",
                      fields.file(),
                      step);
  }
  if (tuned) {
    spec.query_scaling = {.slope = static_cast<float>(slope), .step = static_cast<int32_t>(step)};
  }
  return fields.status();
}

}  // namespace baton
