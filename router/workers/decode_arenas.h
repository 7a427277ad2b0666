#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace baton::router {

// The sizes of the KV arenas of the workers that can decode. They bound the length of an answer. A
// value type.
struct DecodeArenas {
  int32_t block_tokens = 1;
  std::vector<int32_t> blocks;  // arena size of each worker, in blocks

  // The number of tokens that each of `samples` answers to a prompt can have at the same time in
  // the smallest arena that holds the prompt, so that the limit is the same on every worker.
  // nullopt when no arena holds the prompt and one more token.
  std::optional<int32_t> OutputRoom(int64_t prompt_tokens, int32_t samples) const;
};

}  // namespace baton::router
