#include "common/model/cache_layers.h"

namespace baton {

CacheLayers CacheLayersOf(const ModelSpec& spec) {
  CacheLayers layers;
  for (const LayerSpec& layer : spec.layers) {
    if (layer.attention) layers.windows.push_back(layer.tokens_read());
    if (!layer.state) continue;
    layers.state.layers.push_back(layers.count());
    layers.windows.emplace_back();
  }
  if (layers.state.layers.empty()) return layers;
  const RecurrentShape& shape = spec.recurrent.shape;
  const int64_t key_heads = shape.key_heads / spec.kv_heads;
  const auto plane = [&](const char* name, int64_t numbers) {
    return KvPlane{.name = name,
                   .heads = spec.kv_heads,
                   .dim = static_cast<int32_t>(key_heads * numbers),
                   .dtype = DType::kF32};
  };
  layers.state.planes = {plane("state", shape.matrix_numbers()),
                         plane("conv", shape.convolution_numbers())};
  return layers;
}

int32_t CacheLayersBefore(const ModelSpec& spec, int32_t layer) {
  int32_t count = 0;
  for (int32_t i = 0; i < layer; ++i) {
    count += (spec.layers[i].attention ? 1 : 0) + (spec.layers[i].state ? 1 : 0);
  }
  return count;
}

}  // namespace baton
