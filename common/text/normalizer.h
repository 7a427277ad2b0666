#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/text/tokenizer_spec.h"

namespace baton {

// Applies a tokenizer's normalising steps in order. Immutable, so thread-safe. Takes n log n time
// at most, even for long runs of combining marks.
class Normalizer final {
 public:
  explicit Normalizer(std::vector<NormalizerStep> steps) : steps_(std::move(steps)) {}

  bool empty() const { return steps_.empty(); }
  // Takes and returns valid UTF-8. Empty text stays empty, even if a step prepends text.
  std::string Apply(std::string_view text) const;
  // Normalises the text that `parts` make together and returns the normalised form of each part.
  // Nothing when a step acts across the border of two parts (for example when an accent is composed
  // with the letter before it).
  std::optional<std::vector<std::string>> ApplyToParts(
      std::span<const std::string_view> parts) const;

 private:
  std::vector<NormalizerStep> steps_;
};

// `text` with each `from` replaced by `to`, left to right; unchanged when `from` is empty.
std::string ReplaceAll(std::string_view text, std::string_view from, std::string_view to);

}  // namespace baton
