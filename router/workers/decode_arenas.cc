#include "router/workers/decode_arenas.h"

#include <algorithm>

namespace baton::router {

std::optional<int32_t> DecodeArenas::OutputRoom(int64_t prompt_tokens, int32_t samples) const {
  const int64_t needed = prompt_tokens / block_tokens + 1;  // blocks for the prompt and one token
  std::optional<int64_t> smallest;
  for (const int64_t arena : blocks) {
    if (arena >= needed) smallest = std::min(arena, smallest.value_or(arena));
  }
  if (!smallest.has_value()) return std::nullopt;
  // All samples share the prompt's full blocks. One block stays free for a copy of the prompt's
  // last block, which a hand-off may still hold. The last token of a sample needs no KV.
  const int64_t shared = prompt_tokens / block_tokens;
  const int64_t own = (*smallest - shared - 1) / std::max(1, samples);
  const int64_t room = (shared + own) * block_tokens + 1 - prompt_tokens;
  return static_cast<int32_t>(std::clamp<int64_t>(room, 1, INT32_MAX));
}

}  // namespace baton::router
