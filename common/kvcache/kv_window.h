#pragma once

#include <algorithm>
#include <compare>
#include <cstdint>

namespace baton {

// Which tokens the attention of a layer reads, among those up to the token that it computes: all of
// them, the last ones (a sliding window), or those of the chunk that the token is in. Chunks are
// consecutive: the first one begins at token 0.
struct KvWindow {
  int32_t tokens = 0;    // of the window or of a chunk; 0: all tokens
  bool chunked = false;  // they are those of a chunk

  constexpr KvWindow() = default;
  constexpr KvWindow(int32_t sliding) : tokens(sliding) {}  // NOLINT(google-explicit-constructor)
  static constexpr KvWindow OfChunks(int32_t tokens) {
    KvWindow window(tokens);
    window.chunked = true;
    return window;
  }

  auto operator<=>(const KvWindow&) const = default;

  constexpr bool reads_all() const { return tokens == 0; }
  // The first token that token number `next` reads. Never decreases as `next` grows.
  constexpr int64_t FirstRead(int64_t next) const {
    if (reads_all()) return 0;
    return chunked ? next - next % tokens : std::max<int64_t>(0, next - tokens + 1);
  }
};

// The KvWindow of states: the next token needs the state after the token before it.
inline constexpr KvWindow kStateWindow = 2;

// The first block of tokens that token number `next` reads.
inline int32_t FirstBlockRead(int64_t next, KvWindow window, int32_t block_tokens) {
  return static_cast<int32_t>(window.FirstRead(next) / block_tokens);
}

// The first block of tokens that a sequence of `tokens` computed tokens keeps: the first one that
// its next token reads, and at least its last one.
inline int32_t FirstBlockKept(int64_t tokens, KvWindow window, int32_t block_tokens) {
  const auto last = static_cast<int32_t>((tokens - 1) / block_tokens);
  return std::min(FirstBlockRead(tokens, window, block_tokens), last);
}

}  // namespace baton
