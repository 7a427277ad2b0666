#include "common/model/recurrent_weights.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <span>
#include <vector>

namespace baton {
namespace {

// The first channels of q, k and v in the files.
struct FileChannels {
  int64_t q = 0;
  int64_t k = 0;
  int64_t v = 0;
};

FileChannels ChannelsOf(const RecurrentSpec& spec) {
  const int64_t keys = spec.file_key_numbers();
  switch (spec.shape.rule) {
    case RecurrentRule::kDelta:
    case RecurrentRule::kChannelDelta:
      return {.k = keys, .v = 2 * keys};
    case RecurrentRule::kStateSpace:
      return {.q = spec.shape.value_numbers() + keys, .k = spec.shape.value_numbers()};
    case RecurrentRule::kSelectiveScan:
      break;
  }
  return {};
}

// Numbers of some key heads, `taps` of each channel, in the order of RecurrentArgs::convolution, of
// all numbers in the order of the files: [channels][taps].
std::vector<float> OrderByKeyHead(std::span<const float> numbers,
                                  const RecurrentSpec& spec,
                                  int32_t taps,
                                  const IndexRange& key_heads) {
  const RecurrentShape& shape = spec.shape;
  const FileChannels channels = ChannelsOf(spec);
  const int64_t values = int64_t{shape.group()} * shape.value_dim;
  // Of a bias, the factors of what is convolved are no factors.
  const bool scaled = taps > 1;
  std::vector<float> ordered;
  for (int64_t head = key_heads.begin; head < key_heads.end; ++head) {
    const int64_t key = spec.FileKey(head) * shape.key_dim;
    for (int32_t tap = 0; tap < taps; ++tap) {
      const auto append = [&](int64_t first, int64_t count, float scale) {
        for (int64_t channel = first; channel < first + count; ++channel) {
          const float number = numbers[static_cast<size_t>(channel * taps + tap)];
          ordered.push_back(scaled ? number * scale : number);
        }
      };
      if (shape.first_value_channel() > 0) {
        append(channels.q + key, shape.key_dim, spec.query_scale);
        append(channels.k + key, shape.key_dim, spec.key_scale);
      }
      append(channels.v + head * values, values, spec.value_scale);
    }
  }
  return ordered;
}

// Loads the weights of one layer.
class LayerLoader {
 public:
  LayerLoader(WeightLoader& loader,
              const ModelSpec& spec,
              const DecoderSlice& slice,
              int32_t layer,
              RecurrentWeights& to)
      : loader_(loader),
        spec_(spec),
        shape_(spec.recurrent.shape),
        slice_(slice),
        layer_(layer),
        heads_(RowsOfHeads(slice.kv_heads, shape_.key_heads / spec.kv_heads)),
        to_(to) {}

  Status Load() {
    BATON_RETURN_IF_ERROR(LoadInputs());
    BATON_RETURN_IF_ERROR(LoadConvolution());
    BATON_RETURN_IF_ERROR(LoadVectors());
    const Extent outputs{spec_.hidden, slice_.hidden};
    BATON_ASSIGN_OR_RETURN(
        to_.output,
        loader_.LoadStacked({{Id(WeightKind::kRecurrentOutput), outputs}}, OutputColumns()));
    return OkStatus();
  }

 private:
  WeightId Id(WeightKind kind) const { return {kind, layer_, -1}; }
  // `size` numbers of each key head.
  Extent OfHeads(int64_t size) const {
    return {shape_.key_heads * size, RowsOfHeads(heads_, size)};
  }
  // Of v of all heads: whole where the ranks gather it.
  Extent OutputColumns() const {
    Extent columns = OfHeads(int64_t{shape_.group()} * shape_.value_dim);
    if (slice_.hidden) columns.range.reset();
    return columns;
  }

  Status LoadInputs() {
    switch (shape_.rule) {
      case RecurrentRule::kDelta:
        return LoadDelta();
      case RecurrentRule::kChannelDelta:
        return LoadChannelDelta();
      case RecurrentRule::kStateSpace:
        return LoadStateSpace();
      case RecurrentRule::kSelectiveScan:
        break;
    }
    return LoadSelectiveScan();
  }

  Status LoadRows(WeightKind kind, const Extent& rows, std::unique_ptr<Matrix>& to) {
    return LoadRows(kind, rows, {spec_.hidden}, to);
  }
  Status LoadRows(WeightKind kind,
                  const Extent& rows,
                  const Extent& columns,
                  std::unique_ptr<Matrix>& to) {
    BATON_ASSIGN_OR_RETURN(to, loader_.LoadStacked({{Id(kind), rows}}, columns));
    return OkStatus();
  }

  Status LoadDelta() {
    const Extent inputs = OfHeads(shape_.input_columns() / shape_.key_heads);
    const Extent gates = OfHeads(int64_t{2} * shape_.group());
    BATON_RETURN_IF_ERROR(spec_.recurrent.inputs_by_kind
                              ? LoadInputsByKind()
                              : LoadRows(WeightKind::kRecurrentInput, inputs, to_.input));
    return spec_.recurrent.gates_by_kind ? LoadGatesByKind()
                                         : LoadRows(WeightKind::kRecurrentGates, gates, to_.gates);
  }

  // The rows `first` … `first` + `count` − 1 of a tensor of `rows` rows.
  WeightPart PartOf(WeightKind kind, int64_t rows, int64_t first, int64_t count) const {
    return {Id(kind), {rows, IndexRange{first, first + count}}};
  }
  IndexRange KeyHeads() const { return heads_.value_or(IndexRange{0, shape_.key_heads}); }

  // [q | k | v | z] of each key head, of a tensor of all q, k and v and one of all z.
  Status LoadInputsByKind() {
    const int64_t keys = spec_.recurrent.file_key_numbers();
    const int64_t values = shape_.value_numbers();
    const int64_t of_values = int64_t{shape_.group()} * shape_.value_dim;
    const auto qkv = [&](int64_t first, int64_t count) {
      return PartOf(WeightKind::kRecurrentInput, 2 * keys + values, first, count);
    };
    std::vector<WeightPart> parts;
    for (int64_t head = KeyHeads().begin; head < KeyHeads().end; ++head) {
      const int64_t key = spec_.recurrent.FileKey(head) * shape_.key_dim;
      parts.push_back(qkv(key, shape_.key_dim));
      parts.push_back(qkv(keys + key, shape_.key_dim));
      parts.push_back(qkv(2 * keys + head * of_values, of_values));
      parts.push_back(PartOf(WeightKind::kRecurrentZ, values, head * of_values, of_values));
    }
    BATON_ASSIGN_OR_RETURN(to_.input, loader_.LoadStacked(parts, {spec_.hidden}));
    return OkStatus();
  }

  // [b | a] of each key head, of a tensor of all b and one of all a.
  Status LoadGatesByKind() {
    const int64_t group = shape_.group();
    std::vector<WeightPart> parts;
    for (int64_t head = KeyHeads().begin; head < KeyHeads().end; ++head) {
      for (const WeightKind kind : {WeightKind::kRecurrentBeta, WeightKind::kRecurrentTimes}) {
        parts.push_back(PartOf(kind, shape_.value_heads, head * group, group));
      }
    }
    BATON_ASSIGN_OR_RETURN(to_.gates, loader_.LoadStacked(parts, {spec_.hidden}));
    return OkStatus();
  }

  // One tensor has the rows of z, v, k, q and the times, of all heads each.
  Status LoadStateSpace() {
    const int64_t rows = shape_.input_columns() + shape_.gate_columns();
    const int64_t values = shape_.value_numbers();
    const int64_t keys = shape_.key_numbers();
    const IndexRange all{0, shape_.key_heads};
    const IndexRange heads = heads_.value_or(all);
    const int64_t of_head = int64_t{shape_.group()} * shape_.value_dim;
    const int64_t copies = shape_.key_copies;
    const IndexRange of_keys{heads.begin / copies * shape_.key_dim,
                             ((heads.end - 1) / copies + 1) * shape_.key_dim};
    const auto part = [&](int64_t first, const IndexRange& range) {
      const Extent extent{rows, IndexRange{first + range.begin, first + range.end}};
      return WeightPart{Id(WeightKind::kRecurrentInput), extent};
    };
    const IndexRange of_values{heads.begin * of_head, heads.end * of_head};
    const IndexRange of_times{heads.begin * shape_.group(), heads.end * shape_.group()};
    const Extent hidden{spec_.hidden};
    BATON_ASSIGN_OR_RETURN(to_.input,
                           loader_.LoadStacked({part(0, of_values),
                                                part(values, of_values),
                                                part(2 * values, of_keys),
                                                part(2 * values + keys, of_keys)},
                                               hidden));
    BATON_ASSIGN_OR_RETURN(to_.gates,
                           loader_.LoadStacked({part(2 * values + 2 * keys, of_times)}, hidden));
    return OkStatus();
  }

  Status LoadChannelDelta() {
    const Extent keys = OfHeads(shape_.key_dim);
    const Extent values = OfHeads(shape_.value_dim);
    const Extent rank{spec_.recurrent.latent_rank};
    BATON_ASSIGN_OR_RETURN(to_.input,
                           loader_.LoadStacked({{Id(WeightKind::kQuery), keys},
                                                {Id(WeightKind::kKey), keys},
                                                {Id(WeightKind::kValue), values},
                                                {Id(WeightKind::kRecurrentBeta), OfHeads(1)}},
                                               {spec_.hidden}));
    BATON_RETURN_IF_ERROR(LoadRows(WeightKind::kRecurrentTimeDown, rank, to_.time_down));
    BATON_RETURN_IF_ERROR(LoadRows(WeightKind::kRecurrentTimeUp, keys, rank, to_.gates));
    BATON_RETURN_IF_ERROR(LoadRows(WeightKind::kRecurrentGateDown, rank, to_.gate_down));
    return LoadRows(WeightKind::kRecurrentGateUp, values, rank, to_.gate);
  }

  // One tensor has the rows of v and z, another one, which is multiplied with v, those of the
  // times, k and q.
  Status LoadSelectiveScan() {
    const int64_t values = shape_.value_numbers();
    const int64_t rank = spec_.recurrent.latent_rank;
    const Extent of_heads = OfHeads(shape_.value_dim);
    const IndexRange held = of_heads.range.value_or(IndexRange{0, values});
    const Extent z{2 * values, IndexRange{values + held.begin, values + held.end}};
    BATON_RETURN_IF_ERROR(
        LoadRows(WeightKind::kRecurrentInput, Extent{2 * values, held}, to_.input));
    BATON_RETURN_IF_ERROR(LoadRows(WeightKind::kRecurrentInput, z, to_.gate));
    const int64_t rows = rank + 2 * int64_t{shape_.key_dim};
    const Extent columns = OutputColumns();
    const auto load_part = [&](int64_t first, int64_t count, std::unique_ptr<Matrix>& to) {
      const Extent part{rows, IndexRange{first, first + count}};
      return LoadRows(WeightKind::kRecurrentTimeDown, part, columns, to);
    };
    BATON_RETURN_IF_ERROR(load_part(0, rank, to_.time_down));
    BATON_RETURN_IF_ERROR(load_part(rank, shape_.key_dim, to_.k));
    BATON_RETURN_IF_ERROR(load_part(rank + shape_.key_dim, shape_.key_dim, to_.q));
    BATON_RETURN_IF_ERROR(
        LoadRows(WeightKind::kRecurrentTimeUp, of_heads, Extent{rank}, to_.gates));
    BATON_ASSIGN_OR_RETURN(to_.time_norm,
                           loader_.LoadVectors({{Id(WeightKind::kRecurrentTimeNorm), {rank}}}));
    const Extent keys{shape_.key_dim};
    BATON_ASSIGN_OR_RETURN(to_.k_norm,
                           loader_.LoadVectors({{Id(WeightKind::kRecurrentKeyNorm), keys}}));
    BATON_ASSIGN_OR_RETURN(to_.q_norm,
                           loader_.LoadVectors({{Id(WeightKind::kRecurrentQueryNorm), keys}}));
    return OkStatus();
  }

  // Appends the numbers of `channels` channels.
  Status Read(WeightKind kind, int64_t channels, int32_t taps, std::vector<float>& numbers) {
    BATON_ASSIGN_OR_RETURN(const std::vector<float> more,
                           loader_.ReadVector({Id(kind), {channels * taps}}));
    numbers.insert(numbers.end(), more.begin(), more.end());
    return OkStatus();
  }

  Status LoadConvolution() {
    const bool convolves_keys = shape_.first_value_channel() > 0;
    const int64_t keys = convolves_keys ? spec_.recurrent.file_key_numbers() : 0;
    const int64_t values = shape_.value_numbers();
    const int64_t all = 2 * keys + values;
    std::vector<float> factors;
    std::vector<float> bias;
    if (shape_.rule == RecurrentRule::kChannelDelta) {
      BATON_RETURN_IF_ERROR(Read(WeightKind::kRecurrentConvolution, keys, shape_.kernel, factors));
      BATON_RETURN_IF_ERROR(
          Read(WeightKind::kRecurrentKeyConvolution, keys, shape_.kernel, factors));
      BATON_RETURN_IF_ERROR(
          Read(WeightKind::kRecurrentValueConvolution, values, shape_.kernel, factors));
    } else {
      BATON_RETURN_IF_ERROR(Read(WeightKind::kRecurrentConvolution, all, shape_.kernel, factors));
    }
    BATON_ASSIGN_OR_RETURN(to_.convolution, LoadOrdered(factors, shape_.kernel));
    if (!spec_.recurrent.convolution_bias) return OkStatus();
    BATON_RETURN_IF_ERROR(Read(WeightKind::kRecurrentConvolutionBias, all, 1, bias));
    BATON_ASSIGN_OR_RETURN(to_.convolution_bias, LoadOrdered(bias, 1));
    return OkStatus();
  }

  StatusOr<std::unique_ptr<Vector>> LoadOrdered(const std::vector<float>& numbers, int32_t taps) {
    if (numbers.empty()) return loader_.LoadVector(numbers);  // only checked
    const IndexRange all{0, shape_.key_heads};
    return loader_.LoadVector(OrderByKeyHead(numbers, spec_.recurrent, taps, heads_.value_or(all)));
  }

  // The files of Mamba have a row of each channel, RecurrentArgs::decay has one of each k.
  Status LoadScanDecay() {
    BATON_ASSIGN_OR_RETURN(
        const std::vector<float> rows,
        loader_.ReadVector({Id(WeightKind::kRecurrentDecay), OfHeads(shape_.matrix_numbers())}));
    std::vector<float> decay(rows.size());
    const auto keys = static_cast<size_t>(shape_.key_dim);
    const auto values = static_cast<size_t>(shape_.value_dim);
    for (size_t i = 0; i < rows.size(); ++i) {
      const size_t channel = i / keys;
      decay[(channel / values * keys + i % keys) * values + channel % values] = rows[i];
    }
    BATON_ASSIGN_OR_RETURN(to_.decay, loader_.LoadVector(decay));
    return OkStatus();
  }

  Status LoadVectors() {
    const RecurrentRule rule = shape_.rule;
    const auto load =
        [&](WeightKind kind, const Extent& size, std::unique_ptr<Vector>& to) -> Status {
      BATON_ASSIGN_OR_RETURN(to, loader_.LoadVectors({{Id(kind), size}}));
      return OkStatus();
    };
    const Extent heads = OfHeads(shape_.group());
    const Extent values = OfHeads(int64_t{shape_.group()} * shape_.value_dim);
    const bool scan = rule == RecurrentRule::kSelectiveScan;
    const Extent times = rule == RecurrentRule::kChannelDelta ? OfHeads(shape_.key_dim)
                         : scan                               ? values
                                                              : heads;
    BATON_RETURN_IF_ERROR(scan ? LoadScanDecay()
                               : load(WeightKind::kRecurrentDecay, heads, to_.decay));
    BATON_RETURN_IF_ERROR(load(WeightKind::kRecurrentTimeBias, times, to_.time_bias));
    const bool adds = scan || rule == RecurrentRule::kStateSpace;
    if (adds) {
      BATON_RETURN_IF_ERROR(load(WeightKind::kRecurrentSkip, scan ? values : heads, to_.skip));
    }
    if (!spec_.recurrent.norm) return OkStatus();
    return load(WeightKind::kRecurrentNorm, adds ? values : Extent{shape_.value_dim}, to_.norm);
  }

  WeightLoader& loader_;
  const ModelSpec& spec_;
  const RecurrentShape& shape_;
  const DecoderSlice& slice_;
  const int32_t layer_;
  const std::optional<IndexRange> heads_;  // key heads
  RecurrentWeights& to_;
};

}  // namespace

Status LoadRecurrent(WeightLoader& loader,
                     const ModelSpec& spec,
                     const DecoderSlice& slice,
                     int32_t layer,
                     RecurrentWeights& to) {
  if (spec.recurrent.input_scale != spec.attention_input_scale) {
    BATON_ASSIGN_OR_RETURN(to.input_norm,
                           loader.LoadNorm(WeightKind::kAttentionNorm,
                                           WeightKind::kAttentionNormBias,
                                           layer,
                                           spec.recurrent.input_scale));
  }
  return LayerLoader(loader, spec, slice, layer, to).Load();
}

}  // namespace baton
