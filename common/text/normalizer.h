#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/text/tokenizer_spec.h"

namespace baton {

// Applies a tokenizer's normalising steps in order. Immutable, so thread-safe. Time grows as n log
// n, also for long runs of combining marks.
class Normalizer final {
 public:
  explicit Normalizer(std::vector<NormalizerStep> steps) : steps_(std::move(steps)) {}

  bool empty() const { return steps_.empty(); }
  // Takes and gives valid UTF-8. Empty text stays empty, also where a step prepends.
  std::string Apply(std::string_view text) const;
  // The same of a text in parts: each part as it stands in the normalised text. Nothing where a
  // step acts across the border of two parts (an accent composes with a letter before it).
  std::optional<std::vector<std::string>> ApplyToParts(
      std::span<const std::string_view> parts) const;

 private:
  std::vector<NormalizerStep> steps_;
};

// `text` with each `from` replaced by `to`, left to right; unchanged when `from` is empty.
std::string ReplaceAll(std::string_view text, std::string_view from, std::string_view to);

}  // namespace baton
