#include "common/model/decoder_slice.h"

#include <string_view>

namespace baton {
namespace {

constexpr std::string_view kWhat = "decoder slice";

// Attention over a slice gives each KV head equally many consecutive query heads.
Status CheckHeads(const ModelSpec& spec, const IndexRange& heads, const IndexRange& kv_heads) {
  const int64_t group = spec.heads / spec.kv_heads;
  const int64_t group_of_slice = heads.size() / kv_heads.size();
  bool same = heads.size() % kv_heads.size() == 0;
  for (int64_t i = 0; same && i < heads.size(); ++i) {
    same = (heads.begin + i) / group == kv_heads.begin + i / group_of_slice;
  }
  if (same) return OkStatus();
  return InvalidArgument(
      "{}: heads [{}, {}) cannot use KV heads [{}, {}); head h of the model uses KV head h / {}, "
      "and each KV head of a slice must have equally many of its heads",
      kWhat,
      heads.begin,
      heads.end,
      kv_heads.begin,
      kv_heads.end,
      group);
}

}  // namespace

Status DecoderSlice::Validate(const ModelSpec& spec) const {
  const auto resolve = [](const std::optional<IndexRange>& range,
                          int64_t size,
                          std::string_view unit) { return ResolveRange(range, size, kWhat, unit); };
  BATON_ASSIGN_OR_RETURN(const IndexRange q, resolve(heads, spec.heads, "heads"));
  BATON_ASSIGN_OR_RETURN(const IndexRange kv, resolve(kv_heads, spec.kv_heads, "KV heads"));
  BATON_RETURN_IF_ERROR(CheckHeads(spec, q, kv));
  const StatusOr<IndexRange> others[] = {
      resolve(layers, spec.layer_count(), "layers"),
      resolve(hidden, spec.hidden, "hidden rows"),
      resolve(intermediate, spec.intermediate, "intermediate rows"),
      resolve(shared_intermediate, spec.moe.shared_intermediate, "rows of the shared expert"),
      resolve(experts, spec.moe.experts, "experts"),
      resolve(expert_intermediate, spec.moe.intermediate, "intermediate rows of experts"),
      resolve(vocab, spec.vocab, "vocabulary rows"),
  };
  for (const auto& other : others) BATON_RETURN_IF_ERROR(other.status());
  return OkStatus();
}

}  // namespace baton
