#include "common/model/dense_kv.h"

#include "common/model/state_layers.h"

namespace baton {

DenseKv DenseKvOf(const ModelSpec& spec, const KvNeeds& needs) {
  DenseKv kv = {.layers = spec.layer_count(),
                .kv_heads = spec.kv_heads,
                .head_dim = spec.head_dim,
                .k_dim_major = needs.k_dim_major,
                .latent_width = spec.latent.width(),
                .state = StateLayersOf(spec)};
  for (const LayerSpec& layer : spec.layers) {
    kv.windows.push_back(needs.cache_groups ? layer.window : spec.sliding_window());
  }
  return kv;
}

}  // namespace baton
