#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace baton::router {

// The KV arenas of the workers that can decode: what an answer can grow to. A value.
struct DecodeArenas {
  int32_t block_tokens = 1;
  std::vector<int32_t> blocks;  // of each worker

  // How many tokens each of `samples` answers to a prompt can have at the same time on the smallest
  // arena that holds the prompt, so that it does not matter where the request goes. Nothing when no
  // arena holds the prompt and one token more.
  std::optional<int32_t> OutputRoom(int64_t prompt_tokens, int32_t samples) const;
};

}  // namespace baton::router
