#include "common/model/fingerprint.h"

#include <iterator>
#include <span>
#include <string>

#include <fmt/format.h>

namespace baton {
namespace {

Hash128 HashOf(const std::string& text) {
  return Xxh3Wide(std::as_bytes(std::span(text)));
}

// Appends values to a text so that different lists of values never give the same text: each string
// is preceded by its length.
class Lines final {
 public:
  template <class... Values>
  void Add(std::string_view name, const Values&... values) {
    text_ += name;
    (Value(values), ...);
    text_ += '\n';
  }
  const std::string& text() const { return text_; }

 private:
  void Value(const std::string& value) {
    fmt::format_to(std::back_inserter(text_), " {}:{}", value.size(), value);
  }
  template <class T>
  void Value(const T& value) {
    if constexpr (std::is_enum_v<T>) {
      fmt::format_to(std::back_inserter(text_), " {}", static_cast<int>(value));
    } else {
      fmt::format_to(std::back_inserter(text_), " {}", value);
    }
  }
  void Value(const std::optional<TokenId>& value) { Value(value.value_or(-1)); }
  void Value(const std::vector<TokenId>& values) {
    for (const TokenId value : values) Value(value);
  }

  std::string text_;
};

}  // namespace

Hash128 ShapeHash(const ModelSpec& spec) {
  return HashOf(spec.ToString());
}

Hash128 TokenizerHash(const TokenizerSpec& spec) {
  Lines lines;
  lines.Add("alphabet", spec.alphabet);
  for (const Piece& piece : spec.pieces) lines.Add("piece", piece.bytes, piece.kind);
  for (const Merge& merge : spec.merges) {
    lines.Add("merge", merge.left, merge.right, merge.result, merge.rank);
  }
  for (const AddedToken& token : spec.added) {
    lines.Add("added",
              token.id,
              token.text,
              token.special,
              token.lstrip,
              token.rstrip,
              token.single_word,
              token.normalized);
  }
  for (const NormalizerStep& step : spec.normalizer) {
    lines.Add("normalizer", step.kind, step.from, step.to);
  }
  for (const SplitStep& step : spec.splits) {
    lines.Add("split", step.kind, step.pattern, step.regex);
  }
  lines.Add("flags",
            spec.prefix_space,
            spec.metaspace,
            spec.ignore_merges,
            spec.fuse_unknown,
            spec.byte_fallback,
            spec.strip_first_space);
  lines.Add("prefix", spec.prefix);
  lines.Add("suffix", spec.suffix);
  lines.Add("special", spec.bos, spec.unknown, spec.padding);
  return HashOf(lines.text());
}

Hash128 Fingerprint(const ModelSpec& spec, const WeightSource& weights) {
  return HashOf(fmt::format("{}weights {}\n", spec.ToString(), weights.Identity()));
}

}  // namespace baton
