#include "common/model/dense_kv.h"

#include <algorithm>
#include <utility>

#include "common/model/cache_layers.h"

namespace baton {

DenseKv DenseKvOf(const ModelSpec& spec, const KvNeeds& needs) {
  CacheLayers layers = CacheLayersOf(spec);
  if (!needs.cache_groups) std::ranges::fill(layers.windows, KvWindow(spec.sliding_window()));
  return {.layers = layers.count(),
          .kv_heads = spec.kv_heads,
          .head_dim = spec.head_dim,
          .k_dim_major = needs.k_dim_major,
          .windows = std::move(layers.windows),
          .latent_width = spec.latent.width(),
          .index_width = spec.latent.index.dim,
          .state = std::move(layers.state)};
}

}  // namespace baton
