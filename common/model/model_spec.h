#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/ids.h"
#include "common/base/status.h"
#include "kernels/ops.h"

namespace baton {

// Llama 2 and 3.x and SmolLM2 are kLlama; Qwen 2.5 is kQwen2; GLM-4 and GLM-Z1 of 2025 are kGlm4.
enum class ModelFamily : uint8_t { kLlama, kMistral, kMixtral, kQwen2, kQwen3, kQwen3Moe, kGlm4 };

// The name in config.json, for example "llama" or "qwen3_moe".
std::string_view Name(ModelFamily family);

enum class RopeScaling : uint8_t {
  kNone,
  kLinear,  // positions divided by `factor`
  kLlama3,  // Llama 3.1: low frequencies divided by `factor`, high ones kept, a ramp in between
  kYarn,    // arXiv:2309.00071
};

std::string_view Name(RopeScaling scaling);

// Rotary position embedding (arXiv:2104.09864) and its scaling to long contexts.
struct RopeSpec {
  double theta = 10000;
  int32_t rotary_dim = 0;  // dimensions of a head that are rotated
  RopePairing pairing = RopePairing::kHalves;
  RopeScaling scaling = RopeScaling::kNone;
  double factor = 1;
  int32_t original_context = 0;  // kLlama3, kYarn: the context length before scaling
  double low_frequency_factor = 1;
  double high_frequency_factor = 4;
  double beta_fast = 32;
  double beta_slow = 1;
  double attention_factor = 0;  // kYarn: 0 = 0.1 · ln(factor) + 1
  bool truncate = true;         // kYarn: the ends of the ramp are rounded to whole dimensions
  bool file_factors = false;    // the weight file has a tensor that divides each frequency
};

struct MoeSpec {
  int32_t experts = 0;
  int32_t experts_per_token = 0;
  int32_t intermediate = 0;  // feed-forward size of one expert
  bool normalize = true;     // the chosen experts' weights sum to 1
};

struct LayerSpec {
  int32_t window = 0;  // sliding attention window in tokens; 0 = full attention
  bool moe = false;    // experts instead of one feed-forward network
};

// The shape of a decoder-only transformer: everything Decoder needs besides the weights. Plain
// data.
struct ModelSpec {
  // The highest allowed values. The readers of configurations and Validate refuse higher ones.
  static constexpr int32_t kMaxHidden = 1 << 20;
  static constexpr int32_t kMaxHeads = 4096;
  static constexpr int32_t kMaxHeadDim = 1024;
  static constexpr int32_t kMaxIntermediate = 1 << 22;
  static constexpr int32_t kMaxVocabulary = 1 << 24;
  static constexpr int32_t kMaxContext = 1 << 28;  // also limits sliding windows
  static constexpr int32_t kMaxExperts = 1024;

  ModelFamily family = ModelFamily::kLlama;
  int32_t hidden = 0;
  int32_t heads = 0;
  int32_t kv_heads = 0;
  int32_t head_dim = 0;
  int32_t intermediate = 0;  // size of the dense feed-forward network; 0 when all layers are MoE
  int32_t vocab = 0;         // rows of the embedding; may exceed the tokenizer's vocabulary
  int32_t context_length = 0;
  float norm_epsilon = 1e-5f;
  RopeSpec rope;
  bool qk_norm = false;     // RMS norm of each q and k head (Qwen 3)
  bool qkv_bias = false;    // attention input biases (Qwen 2)
  bool o_bias = false;      // attention output bias
  bool post_norms = false;  // norms of what attention and the feed-forward add (GLM-4)
  bool mlp_bias = false;    // feed-forward biases
  bool tied_head = false;   // the model's files say that the output head is the embedding table
  // The files tie the head, but have another head of its own (FindOwnHead), which is used. Not in
  // ToString, because only who has the weights knows it; hashes of the weights tell it.
  bool own_head = false;
  MoeSpec moe;
  std::vector<LayerSpec> layers;
  std::vector<TokenId> eos;  // tokens that end a generation, as the model's files name them
  std::optional<TokenId> bos;

  bool embedding_is_head() const { return tied_head && !own_head; }
  int32_t layer_count() const { return static_cast<int32_t>(layers.size()); }
  // The largest sliding window; 0 when a layer has none, so that all KV is read.
  int32_t sliding_window() const;
  HeadShape head_shape() const { return {heads, kv_heads, head_dim}; }
  // Bytes of KV per token when one number takes `number_bytes` bytes.
  size_t KvBytesPerToken(size_t number_bytes) const {
    return layers.size() * 2 * kv_heads * head_dim * number_bytes;
  }

  // InvalidArgument naming `file`, the field that is out of bounds and its value.
  Status Validate(std::string_view file) const;
  // Every field that affects the computation, each on a "name value" line; Fingerprint hashes this
  // text. The context length is not included, because settings may shorten it.
  std::string ToString() const;
};

}  // namespace baton
