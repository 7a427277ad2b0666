#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/base/clock.h"
#include "common/base/token_id.h"

namespace baton {

// The 32-bit words of a mask of `vocabulary` tokens.
constexpr size_t MaskWords(int32_t vocabulary) {
  return (static_cast<size_t>(vocabulary) + 31) / 32;
}

// The tokens that a row of logits may choose. One thread computes the mask while the device
// computes the logits; the thread that samples waits for it. The same mask is computed again for
// each token, but not while it is read.
class TokenMask final {
 public:
  explicit TokenMask(int32_t vocabulary) : words_(MaskWords(vocabulary)) {}

  // The computation begins: readers wait from now on. Called by the thread that also waits.
  void Begin();
  // For the thread that computes. Bit t % 32 of word t / 32 is 1 when token t is allowed.
  std::span<uint32_t> words() { return words_; }
  // The computation has ended. The computing thread does not touch the words any more.
  void Finish();

  // Waits until the mask is computed, at most until `limit`; whether it is.
  bool WaitUntil(Time limit) const;
  // [MaskWords(vocabulary)], to be read when WaitUntil has returned true.
  std::span<const uint32_t> allowed() const { return words_; }

 private:
  std::vector<uint32_t> words_;
  // 1: computed. A futex, accessed through std::atomic_ref. Finish releases the words, WaitUntil
  // acquires them. Begin needs no order: the computation starts after it.
  alignas(4) mutable uint32_t ready_ = 0;
};

}  // namespace baton
