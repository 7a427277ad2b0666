#pragma once

#include <cstdint>
#include <string>

#include "common/model/model_spec.h"
#include "common/model/weight_source.h"

namespace baton {

// The tensor names of a kind of checkpoint: those of Hugging Face or of GGUF, and where a family
// names some weights otherwise or joins them in one tensor, a scheme of its own.
enum class NamingScheme : uint8_t {
  kHuggingFace,
  kMixtral,
  kGateUp,  // gate and up are one tensor
  kPostNorm,
  kGraniteMoe,
  kPhi3,
  kQwen2Moe,
  kMiniMax,
  kHunyuan,
  kPhi,
  kGptNeox,
  kGemma,
  kGptOss,
  kLlama4,
  kQwen3Next,
  kQwen35,
  kBackbone,  // Mamba 2 and Nemotron-H
  kFalconH1,
  kJamba,
  kKimiLinear,
  kErnie,
  kGguf,
  kGgufGateUp,
  kGgufPhi3,
  kGgufSeed,  // also of gpt-oss and GLM-4.5
  kGgufGptNeox,
  kGgufQwen3Next,
  kGgufNemotronH,
  kGgufJamba,
  kGgufKimiLinear,
  kGgufFalconH1,
};

// A scheme, the heads by which a tensor of q, k and v is divided, and the experts of a tensor that
// has all.
struct Naming {
  NamingScheme scheme = NamingScheme::kHuggingFace;
  int32_t heads = 1;
  int32_t kv_heads = 1;
  int32_t experts = 0;

  Naming() = default;
  Naming(NamingScheme names) : scheme(names) {}  // NOLINT(google-explicit-constructor)
  Naming(NamingScheme names, const ModelSpec& spec)
      : scheme(names), heads(spec.heads), kv_heads(spec.kv_heads), experts(spec.moe.experts) {}
};

constexpr bool IsGguf(NamingScheme scheme) {
  return scheme >= NamingScheme::kGguf;
}

// The names in a Hugging Face directory.
Naming HuggingFaceNames(const ModelSpec& spec);
// The names in a GGUF file.
Naming GgufNames(const ModelSpec& spec);

// Whether the files have w − 1 for the weight w of this norm.
bool IsLessByOne(WeightKind kind, NamingScheme scheme);

// The name of a tensor of the text model in the files of a model with images. Where the family has
// no such models: the name itself.
std::string NameBesideImages(const std::string& name, NamingScheme scheme);

// Where a tensor, or its slice of one expert, has the rows of a weight that it is joined of.
enum class RowOrder : uint8_t {
  kPartByPart,
  kHeadByHead,   // the rows of each part of the first head, then those of the second head, …
  kColumns,      // row r of part p is column r · parts + p: [inputs][outputs], with parts in turn
  kColumnParts,  // row r of part p is column p · rows + r: [inputs][outputs], part by part
};

struct TensorName {
  std::string tensor;
  // The weight is slice [expert] of a tensor with an additional outermost dimension (experts).
  bool stacked = false;
  // When stacked: the name of the slice in files where it is a separate tensor, such as GGUF files
  // from before April 2024. Empty: there are no such files.
  std::string slice;
  // The weight has parts part … part + size − 1 of `parts` equal parts of the rows of the tensor,
  // or of the slice.
  int32_t part = 0;
  int32_t size = 1;
  int32_t parts = 1;
  RowOrder order = RowOrder::kPartByPart;
};

// For example "model.layers.3.self_attn.q_proj.weight" or "blk.3.attn_q.weight".
TensorName NameOf(const WeightId& id, const Naming& naming);

}  // namespace baton
