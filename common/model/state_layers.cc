#include "common/model/state_layers.h"

#include <cstdint>

namespace baton {

StateLayers StateLayersOf(const ModelSpec& spec) {
  StateLayers state;
  for (int32_t i = 0; i < spec.layer_count(); ++i) {
    if (spec.layers[i].delta_net) state.layers.push_back(i);
  }
  if (state.layers.empty()) return state;
  const DeltaNetShape& net = spec.delta_net;
  const int64_t key_heads = net.key_heads / spec.kv_heads;
  const auto plane = [&](const char* name, int64_t numbers) {
    return KvPlane{.name = name,
                   .heads = spec.kv_heads,
                   .dim = static_cast<int32_t>(key_heads * numbers),
                   .dtype = DType::kF32};
  };
  state.planes = {plane("state", net.matrix_numbers()), plane("conv", net.convolution_numbers())};
  return state;
}

}  // namespace baton
