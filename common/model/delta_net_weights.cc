#include "common/model/delta_net_weights.h"

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

namespace baton {
namespace {

// The factors of some key heads in the order of DeltaNetArgs::convolution, of all factors in the
// order of the files: [q | k | v of all heads][kernel].
std::vector<float> OrderByKeyHead(std::span<const float> factors,
                                  const DeltaNetShape& shape,
                                  const IndexRange& key_heads) {
  const int64_t keys = int64_t{shape.key_heads} * shape.key_dim;
  const int64_t values = int64_t{shape.group()} * shape.value_dim;
  std::vector<float> ordered;
  for (int64_t head = key_heads.begin; head < key_heads.end; ++head) {
    for (int32_t tap = 0; tap < shape.kernel; ++tap) {
      const auto append = [&](int64_t first, int64_t count) {
        for (int64_t channel = first; channel < first + count; ++channel) {
          ordered.push_back(factors[static_cast<size_t>(channel * shape.kernel + tap)]);
        }
      };
      append(head * shape.key_dim, shape.key_dim);
      append(keys + head * shape.key_dim, shape.key_dim);
      append(2 * keys + head * values, values);
    }
  }
  return ordered;
}

}  // namespace

Status LoadDeltaNet(WeightLoader& loader,
                    const ModelSpec& spec,
                    const DecoderSlice& slice,
                    int32_t layer,
                    LayerWeights& to) {
  const auto id = [layer](WeightKind kind) { return WeightId{kind, layer, -1}; };
  const DeltaNetShape& shape = spec.delta_net;
  const std::optional<IndexRange> heads =
      RowsOfHeads(slice.kv_heads, shape.key_heads / spec.kv_heads);
  // `size` numbers of each key head.
  const auto of_heads = [&](int64_t size) {
    return Extent{shape.key_heads * size, RowsOfHeads(heads, size)};
  };
  const Extent hidden{spec.hidden};
  DeltaNetWeights& net = to.delta_net;
  BATON_ASSIGN_OR_RETURN(
      net.input,
      loader.LoadStacked({{id(WeightKind::kDeltaNetInput), of_heads(shape.input_columns())}},
                         hidden));
  BATON_ASSIGN_OR_RETURN(
      net.gates,
      loader.LoadStacked({{id(WeightKind::kDeltaNetGates), of_heads(int64_t{2} * shape.group())}},
                         hidden));
  BATON_ASSIGN_OR_RETURN(const std::vector<float> factors,
                         loader.ReadVector({id(WeightKind::kDeltaNetConvolution),
                                            {shape.key_heads * shape.convolution_numbers()}}));
  BATON_ASSIGN_OR_RETURN(
      net.convolution,
      loader.LoadVector(
          factors.empty()
              ? factors
              : OrderByKeyHead(factors, shape, heads.value_or(IndexRange{0, shape.key_heads}))));
  BATON_ASSIGN_OR_RETURN(
      net.decay, loader.LoadVectors({{id(WeightKind::kDeltaNetDecay), of_heads(shape.group())}}));
  BATON_ASSIGN_OR_RETURN(
      net.time_bias,
      loader.LoadVectors({{id(WeightKind::kDeltaNetTimeBias), of_heads(shape.group())}}));
  BATON_ASSIGN_OR_RETURN(net.norm,
                         loader.LoadVectors({{id(WeightKind::kDeltaNetNorm), {shape.value_dim}}}));
  const Extent outputs{spec.hidden, slice.hidden};
  Extent inputs = of_heads(int64_t{shape.group()} * shape.value_dim);
  if (slice.hidden) inputs.range.reset();
  BATON_ASSIGN_OR_RETURN(to.attention_output,
                         loader.LoadStacked({{id(WeightKind::kDeltaNetOutput), outputs}}, inputs));
  return OkStatus();
}

}  // namespace baton
