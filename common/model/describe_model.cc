#include "common/model/describe_model.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <set>
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "common/model/count_parameters.h"
#include "common/model/fingerprint.h"
#include "common/model/weight_names.h"

namespace baton {
namespace {

constexpr double kMiB = 1024.0 * 1024.0;

// The heads, and what the KV cache has of them.
std::string HeadsText(const ModelSpec& spec) {
  if (!spec.latent_attention()) {
    return fmt::format(
        "{} heads, {} KV heads, head dimension {}", spec.heads, spec.kv_heads, spec.head_dim);
  }
  const LatentSpec& latent = spec.latent;
  std::string queries =
      latent.q_rank > 0 ? fmt::format(", queries of a latent of {}", latent.q_rank) : "";
  if (latent.index.heads > 0) {
    queries += fmt::format(", the {} tokens that an index of {} heads of {} selects",
                           latent.index.tokens,
                           latent.index.heads,
                           latent.index.dim);
  }
  return fmt::format(
      "{} heads, head dimension {} ({} with rope), {} of values, keys and values of a latent of "
      "{}{}",
      spec.heads,
      spec.head_dim,
      latent.rope_dim,
      latent.value_dim,
      latent.rank,
      queries);
}

std::string AttentionText(const ModelSpec& spec) {
  std::string text = HeadsText(spec);
  if (spec.qk_norm != QkNorm::kNone) text += ", q and k normalised";
  if (spec.qk_norm > QkNorm::kHead) text += fmt::format(" ({})", Name(spec.qk_norm));
  if (spec.qkv_bias) text += spec.latent_attention() ? ", biases" : ", q, k and v biases";
  if (spec.o_bias) text += ", output bias";
  if (spec.attention_sinks) text += ", attention sinks";
  if (spec.attention_cap != 0) {
    text += fmt::format(", attention logits soft-capped at {}", spec.attention_cap);
  }
  if (spec.attention_gate) text += ", output gate";
  if (spec.state_layers() > 0) {
    text += fmt::format(", in {} layers", spec.attention_layers());
  }
  const auto in_window = [](const LayerSpec& layer) { return !layer.tokens_read().reads_all(); };
  const auto first = std::ranges::find_if(spec.layers, in_window);
  if (first != spec.layers.end()) {
    const KvWindow window = first->tokens_read();
    text += fmt::format(", {} {} in {} layers",
                        window.chunked ? "chunks of" : "sliding window",
                        window.tokens,
                        std::ranges::count_if(spec.layers, in_window));
  }
  if (spec.query_scaling.slope != 0) text += ", queries scaled by position";
  const auto still = std::count_if(
      spec.layers.begin(), spec.layers.end(), [](const LayerSpec& l) { return !l.rotary; });
  if (still > 0) text += fmt::format(", no rope in {} layers", still);
  return text;
}

std::string RecurrentText(const ModelSpec& spec) {
  const RecurrentShape& net = spec.recurrent.shape;
  return fmt::format("in {} layers, {} key heads of {}, {} value heads of {}, convolution of {}",
                     spec.state_layers(),
                     net.key_heads,
                     net.key_dim,
                     net.value_heads,
                     net.value_dim,
                     net.kernel);
}

std::string RopeText(const RopeSpec& rope) {
  std::string text = fmt::format("theta {}, rotary dimension {}, {}",
                                 rope.theta,
                                 rope.rotary_dim,
                                 rope.pairing == RopePairing::kHalves ? "halves" : "adjacent");
  if (rope.scaling != RopeScaling::kNone) {
    text += fmt::format(", {} scaling by {}", Name(rope.scaling), rope.factor);
  }
  if (rope.original_context > 0) text += fmt::format(" from {} tokens", rope.original_context);
  if (rope.file_factors) text += ", factors from the file";
  return text;
}

std::string FeedForwardText(const ModelSpec& spec) {
  const auto moe = std::ranges::count_if(spec.layers, &LayerSpec::moe);
  const auto networks = std::ranges::count_if(spec.layers, &LayerSpec::feed_forward);
  if (networks == 0) return "none";
  std::string text;
  if (moe < networks) {
    text = fmt::format("{}{}", spec.intermediate, spec.mlp_bias ? ", with biases" : "");
  }
  if (moe > 0) {
    text += fmt::format("{}{} experts of {}, {} per token, in {} layers",
                        text.empty() ? "" : "; ",
                        spec.moe.experts,
                        spec.moe.intermediate,
                        spec.moe.experts_per_token,
                        moe);
    if (spec.moe.biases) text += ", with biases";
    if (spec.moe.gate.limit > 0) {
      text += fmt::format(", a gate clamped at {}", spec.moe.gate.limit);
    }
    if (spec.moe.shared_intermediate > 0) {
      text += fmt::format(", a shared expert of {}", spec.moe.shared_intermediate);
    }
  }
  if (!spec.silu()) text += fmt::format(", {}", Name(spec.feed_forward));
  return text;
}

// The KV of the layers with each window, at 16 bits.
std::string WindowsText(const ModelSpec& spec) {
  std::map<KvWindow, int32_t> layers;  // by window
  for (const LayerSpec& layer : spec.layers) ++layers[layer.tokens_read()];
  std::vector<std::string> parts;
  for (const auto& [window, count] : layers) {
    const size_t token_bytes = spec.KvBytesPerToken(2) / spec.layers.size() * count;
    parts.push_back(
        window.reads_all()
            ? fmt::format("{} layers with {} bytes per token", count, token_bytes)
            : fmt::format(
                  "{} layers with {} bytes per token of a {} of {}, {:.1f} MiB per sequence",
                  count,
                  token_bytes,
                  window.chunked ? "chunk" : "window",
                  window.tokens,
                  static_cast<double>(token_bytes * window.tokens) / kMiB));
  }
  return fmt::format("{}", fmt::join(parts, "; "));
}

// How a layer differs from those of Llama; empty: not at all.
std::string BlocksText(const ModelSpec& spec) {
  std::vector<std::string> parts;
  if (spec.residual != ResidualForm::kPreNorm) parts.emplace_back(Name(spec.residual));
  if (spec.norm != NormKind::kRms) parts.emplace_back(Name(spec.norm));
  const auto add_scale = [&parts](std::string_view what, float scale, float usual) {
    if (scale != usual) parts.push_back(fmt::format("{} scale {}", what, scale));
  };
  add_scale("embedding", spec.embedding_scale, 1);
  add_scale("residual", spec.residual_scale, 1);
  add_scale("attention", spec.attention_scale, 0);
  add_scale("logit", spec.logit_scale, 1);
  if (spec.logit_cap != 0) parts.push_back(fmt::format("logits soft-capped at {}", spec.logit_cap));
  return fmt::format("{}", fmt::join(parts, ", "));
}

// The number of tensors of each type: "61 f32, 210 q4_1".
std::string TypesText(const std::vector<TensorInfo>& tensors) {
  std::map<std::string_view, size_t> counts;
  for (const TensorInfo& tensor : tensors) ++counts[tensor.type];
  std::string text;
  for (const auto& [type, count] : counts) {
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", count, type);
  }
  return text;
}

// Replaces every number between two dots with "*", so that tensors which differ only in layer or
// expert share one line.
std::string PatternOf(const std::string& name) {
  std::string pattern;
  for (size_t begin = 0; begin <= name.size();) {
    const size_t end = std::min(name.find('.', begin), name.size());
    const std::string_view part = std::string_view(name).substr(begin, end - begin);
    const bool number = part.find_first_not_of("0123456789") == std::string_view::npos;
    pattern += number && !part.empty() ? "*" : part;
    if (end < name.size()) pattern += '.';
    begin = end + 1;
  }
  return pattern;
}

// The layer number in "model.layers.3.mlp.gate_proj.weight" or "blk.3.ffn_gate.weight"; -1 when
// the name has none.
int32_t LayerOf(const std::string& name) {
  for (const std::string_view prefix : {"model.layers.", "gpt_neox.layers.", "blk."}) {
    int32_t layer = 0;
    if (!name.starts_with(prefix)) continue;
    const char* const end = name.data() + name.size();
    const auto [next, error] = std::from_chars(name.data() + prefix.size(), end, layer);
    if (error == std::errc() && next != end && *next == '.') return layer;
  }
  return -1;
}

// Whether this is a tensor that is read with the configuration, or a redundant one that some
// converters write: its content follows from the configuration or from other tensors.
bool IsKnownRest(const std::string& name, const ModelSpec& spec) {
  if (name.ends_with(".rotary_emb.inv_freq") || name.starts_with("rope_factors_")) return true;
  return spec.embedding_is_head() &&
         name == NameOf({WeightKind::kHead}, NamingScheme::kHuggingFace).tensor;
}

}  // namespace

std::vector<std::string> DescribeUnread(const ModelSpec& spec, const WeightSource& weights) {
  constexpr size_t kMaxLines = 16;
  std::vector<std::string> lines;
  std::map<std::string, size_t> patterns;
  std::set<int32_t> layers;
  for (const std::string& name : weights.Unread()) {
    if (IsKnownRest(name, spec)) continue;
    const int32_t layer = LayerOf(name);
    if (layer < spec.layer_count()) {
      ++patterns[PatternOf(name)];
    } else {
      layers.insert(layer);
    }
  }
  if (!layers.empty()) {
    lines.push_back(
        fmt::format("layers {} to {} of the files are not loaded: the configuration has {} layers",
                    *layers.begin(),
                    *layers.rbegin(),
                    spec.layer_count()));
  }
  for (const auto& [pattern, count] : patterns) {
    if (lines.size() == kMaxLines) {
      lines.push_back("more tensors of the files are not loaded");
      break;
    }
    lines.push_back(fmt::format(
        "{} is not loaded ({} tensors): the configuration does not use it", pattern, count));
  }
  return lines;
}

ModelDescription DescribeModel(const OpenedModel& model) {
  const ModelSpec& spec = model.spec;
  ModelDescription description;
  description.tensors = model.weights->Tensors();
  for (const TensorInfo& tensor : description.tensors) description.tensor_bytes += tensor.bytes;
  auto& lines = description.lines;
  lines.push_back({"name", model.name});
  lines.push_back({"family", std::string(Name(spec.family))});
  lines.push_back({"fingerprint", fmt::format("{}", Fingerprint(spec, *model.weights))});
  lines.push_back({"layers", fmt::format("{}", spec.layer_count())});
  lines.push_back({"hidden size", fmt::format("{}", spec.hidden)});
  if (const std::string blocks = BlocksText(spec); !blocks.empty()) {
    lines.push_back({"blocks", blocks});
  }
  if (spec.attention_layers() > 0) lines.push_back({"attention", AttentionText(spec)});
  if (spec.state_layers() > 0) {
    lines.push_back({std::string(Name(spec.recurrent.shape.rule)), RecurrentText(spec)});
  }
  lines.push_back({"feed-forward", FeedForwardText(spec)});
  lines.push_back(
      {"vocabulary",
       fmt::format(
           "{}{}", spec.vocab, spec.embedding_is_head() ? ", head tied to embedding" : "")});
  lines.push_back({"context length", fmt::format("{} tokens", spec.context_length)});
  const bool rotates = std::ranges::any_of(
      spec.layers, [](const LayerSpec& layer) { return layer.attention && layer.rotary; });
  if (rotates) lines.push_back({"rope", RopeText(spec.rope)});
  lines.push_back({"end tokens", fmt::format("{}", fmt::join(spec.eos, ", "))});
  lines.push_back({"KV per token",
                   fmt::format("{} bytes at 16 bits, {} at 32 bits{}",
                               spec.KvBytesPerToken(2),
                               spec.KvBytesPerToken(4),
                               spec.latent_attention() ? ", on each tensor-parallel rank" : "")});
  if (spec.StateBytes() > 0) {
    lines.push_back({"state per sequence", fmt::format("{} bytes", spec.StateBytes())});
  }
  const bool has_windows = std::ranges::any_of(
      spec.layers, [](const LayerSpec& layer) { return !layer.tokens_read().reads_all(); });
  if (has_windows) lines.push_back({"KV at 16 bits", WindowsText(spec)});
  if (description.tensors.empty()) {
    lines.push_back({"tensors", "random (dummy)"});
    return description;
  }
  lines.push_back({"parameters", fmt::format("{}", CountParameters(spec))});
  lines.push_back({"tensors",
                   fmt::format("{} ({}), {:.1f} MiB",
                               description.tensors.size(),
                               TypesText(description.tensors),
                               static_cast<double>(description.tensor_bytes) / kMiB)});
  return description;
}

}  // namespace baton
