#pragma once

#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "common/kvcache/kv_window.h"
#include "kernels/kv_view.h"
#include "kernels/step_input.h"

// The numbers that FakeExecutor keeps in place of KV and of states.
namespace baton {

inline uint64_t Mix(uint64_t a, uint64_t b) {
  uint64_t z = (a ^ (b + 0x9E3779B97F4A7C15 + (a << 6))) * 0xBF58476D1CE4E5B9;
  z ^= z >> 29;
  z *= 0x94D049BB133111EB;
  return z ^ (z >> 32);
}

// Whether the token at this position is the first one of a chunk, and so reads none before it.
inline bool BeginsChunk(KvWindow window, int64_t position) {
  return window.chunked && window.FirstRead(position) == position;
}

// The KV of a token in a layer depends on all tokens before it, as in a transformer, or on those of
// its chunk.
inline uint64_t KvOf(uint64_t previous, TokenId token, int64_t position, int32_t layer) {
  const uint64_t here = Mix(static_cast<uint64_t>(position), static_cast<uint64_t>(layer));
  return Mix(Mix(previous, static_cast<uint64_t>(token)), here) | 1;
}

// Adds the KV that the row of a position sees in a layer to a digest. `values` is that of the
// tokens up to this position, at least those that the row sees.
inline uint64_t AddTo(uint64_t digest,
                      std::span<const uint64_t> values,
                      int64_t position,
                      KvWindow window) {
  const auto seen = static_cast<size_t>(position + 1 - window.FirstRead(position));
  for (const uint64_t value : values.last(seen)) digest = Mix(digest, value);
  return digest;
}

// The KV of a sequence's tokens in each layer, computed without blocks.
class KvOfTokens {
 public:
  explicit KvOfTokens(std::span<const KvWindow> windows)
      : windows_(windows), layers_(windows.size()) {}

  void Add(TokenId token) {
    for (size_t layer = 0; layer < layers_.size(); ++layer) {
      std::vector<uint64_t>& values = layers_[layer];
      const auto position = static_cast<int64_t>(values.size());
      const bool first = values.empty() || BeginsChunk(windows_[layer], position);
      values.push_back(
          KvOf(first ? 0 : values.back(), token, position, static_cast<int32_t>(layer)));
    }
  }
  size_t size() const { return layers_[0].size(); }
  // What the last token sees.
  uint64_t Digest() const {
    uint64_t digest = 0;
    for (size_t layer = 0; layer < layers_.size(); ++layer) {
      const auto position = static_cast<int64_t>(size()) - 1;
      digest = AddTo(digest, layers_[layer], position, windows_[layer]);
    }
    return digest;
  }

 private:
  std::span<const KvWindow> windows_;
  std::vector<std::vector<uint64_t>> layers_;
};

// A state of a layer: elements of 32 bits in the blocks of a list.
class FakeState {
 public:
  FakeState(const KvView& kv, int32_t layer, std::span<const int32_t> blocks)
      : kv_(kv), blocks_(blocks), begin_(kv.PlaceOf(layer).index * kv.state.layer_bytes) {}

  // Writes the state after `tokens` tokens. Each element depends on the value.
  void Write(int32_t tokens, uint64_t value) {
    for (int64_t i = 0; i < elements(); ++i) {
      const uint32_t element = ElementOf(i, tokens, value);
      std::memcpy(At(i), &element, sizeof(element));
    }
  }
  // The value of the state, or nothing if it is not one after `tokens` tokens.
  std::optional<uint64_t> Read(int32_t tokens) const {
    uint32_t low = 0;
    uint32_t high = 0;
    std::memcpy(&low, At(0), sizeof(low));
    std::memcpy(&high, At(1), sizeof(high));
    const uint64_t value = uint64_t{high} << 32 | low;
    for (int64_t i = 2; i < elements(); ++i) {
      uint32_t element = 0;
      std::memcpy(&element, At(i), sizeof(element));
      if (element != ElementOf(i, tokens, value)) return std::nullopt;
    }
    return value;
  }

 private:
  int64_t elements() const { return kv_.state.layer_bytes / 4; }
  static uint32_t ElementOf(int64_t index, int32_t tokens, uint64_t value) {
    if (index < 2) return static_cast<uint32_t>(value >> 32 * index);
    const auto place = static_cast<uint64_t>(index) << 32 | static_cast<uint32_t>(tokens);
    return static_cast<uint32_t>(Mix(value, place));
  }
  std::byte* At(int64_t index) const {
    const int64_t byte = begin_ + 4 * index;
    return kv_.base + blocks_[byte / kv_.state.block_bytes] * kv_.block_stride +
           byte % kv_.state.block_bytes;
  }

  const KvView& kv_;
  const std::span<const int32_t> blocks_;
  const int64_t begin_;
};

}  // namespace baton
