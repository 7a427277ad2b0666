#include "common/model/describe_model.h"

#include <algorithm>
#include <map>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "common/model/fingerprint.h"

namespace baton {
namespace {

constexpr double kMiB = 1024.0 * 1024.0;

std::string AttentionText(const ModelSpec& spec) {
  std::string text = fmt::format(
      "{} heads, {} KV heads, {} numbers each", spec.heads, spec.kv_heads, spec.head_dim);
  if (spec.qk_norm) text += ", q and k normalised";
  if (spec.qkv_bias) text += ", q, k and v biases";
  if (spec.o_bias) text += ", output bias";
  const auto sliding = std::count_if(
      spec.layers.begin(), spec.layers.end(), [](const LayerSpec& l) { return l.window > 0; });
  if (sliding > 0) {
    const auto first = std::find_if(
        spec.layers.begin(), spec.layers.end(), [](const LayerSpec& l) { return l.window > 0; });
    text += fmt::format(", sliding window {} in {} layers", first->window, sliding);
  }
  return text;
}

std::string RopeText(const RopeSpec& rope) {
  std::string text = fmt::format("theta {}, {} numbers, {}",
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
  const auto moe = std::count_if(
      spec.layers.begin(), spec.layers.end(), [](const LayerSpec& l) { return l.moe; });
  std::string text;
  if (moe < spec.layer_count()) {
    text = fmt::format("{}{}", spec.intermediate, spec.mlp_bias ? ", with biases" : "");
  }
  if (moe > 0) {
    text += fmt::format("{}{} experts of {}, {} a token, in {} layers",
                        text.empty() ? "" : "; ",
                        spec.moe.experts,
                        spec.moe.intermediate,
                        spec.moe.experts_per_token,
                        moe);
  }
  return text;
}

// "q4_1 210, f32 61": how many tensors there are of each type.
std::string TypesText(const std::vector<TensorInfo>& tensors) {
  std::map<std::string_view, size_t> counts;
  for (const TensorInfo& tensor : tensors) ++counts[Name(tensor.dtype)];
  std::string text;
  for (const auto& [type, count] : counts) {
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", count, type);
  }
  return text;
}

}  // namespace

ModelDescription DescribeModel(const OpenedModel& model) {
  const ModelSpec& spec = model.spec;
  ModelDescription description;
  description.tensors = model.weights->Tensors();
  int64_t parameters = 0;
  for (const TensorInfo& tensor : description.tensors) {
    int64_t count = 1;
    for (const int64_t size : tensor.shape) count *= size;
    parameters += count;
    description.tensor_bytes += tensor.bytes;
  }
  auto& lines = description.lines;
  lines.push_back({"name", model.name});
  lines.push_back({"family", std::string(Name(spec.family))});
  lines.push_back({"fingerprint", fmt::format("{}", Fingerprint(spec, *model.weights))});
  lines.push_back({"layers", fmt::format("{}", spec.layer_count())});
  lines.push_back({"hidden size", fmt::format("{}", spec.hidden)});
  lines.push_back({"attention", AttentionText(spec)});
  lines.push_back({"feed-forward", FeedForwardText(spec)});
  lines.push_back(
      {"vocabulary",
       fmt::format("{}{}", spec.vocab, spec.tied_head ? ", head tied to embedding" : "")});
  lines.push_back({"context length", fmt::format("{} tokens", spec.context_length)});
  lines.push_back({"rope", RopeText(spec.rope)});
  lines.push_back({"end tokens", fmt::format("{}", fmt::join(spec.eos, ", "))});
  lines.push_back(
      {"KV a token",
       fmt::format(
           "{} bytes in 16 bits, {} in 32", spec.KvBytesPerToken(2), spec.KvBytesPerToken(4))});
  if (description.tensors.empty()) {
    lines.push_back({"tensors", "random (dummy)"});
    return description;
  }
  lines.push_back({"parameters", fmt::format("{}", parameters)});
  lines.push_back({"tensors",
                   fmt::format("{} ({}), {:.1f} MiB",
                               description.tensors.size(),
                               TypesText(description.tensors),
                               static_cast<double>(description.tensor_bytes) / kMiB)});
  return description;
}

}  // namespace baton
