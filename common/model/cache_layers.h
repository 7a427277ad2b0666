#pragma once

#include <cstdint>
#include <vector>

#include "common/kvcache/layout.h"
#include "common/model/model_spec.h"

namespace baton {

// What the layers of a model keep of a sequence, as the layers of a KvLayout: a *cache layer* has
// the KV of one layer, or its state. A layer of the model with both has two cache layers, first
// that of its KV; a layer with neither has none.
struct CacheLayers {
  std::vector<KvWindow> windows;  // by cache layer: LayerSpec::tokens_read; all tokens for states
  // The cache layers with states. A plane has as many heads as the model has KV heads: each has the
  // key heads of the recurrent layer that go to the same rank as the KV head.
  StateLayers state;

  int32_t count() const { return static_cast<int32_t>(windows.size()); }
};

CacheLayers CacheLayersOf(const ModelSpec& spec);

// The number of cache layers of the layers before `layer`.
int32_t CacheLayersBefore(const ModelSpec& spec, int32_t layer);

}  // namespace baton
