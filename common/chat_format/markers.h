#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace baton {

// Stands in a parser's text before the text of a special token. No UTF-8 text has this byte, so a
// marker that is a special token cannot be written with ordinary tokens.
constexpr char kSpecialSign = '\xFF';

// The markers of chat formats that are special tokens of a vocabulary. Immutable.
class SpecialMarkers final {
 public:
  SpecialMarkers() = default;
  // Of literals.
  explicit SpecialMarkers(std::vector<std::string_view> tokens);

  bool empty() const { return tokens_.empty(); }
  // `marker` as it stands in a parser's text: with the sign before each special token in it.
  std::string Signed(std::string_view marker) const { return Signed(marker, {&kSpecialSign, 1}); }
  // The same with another sign.
  std::string Signed(std::string_view marker, std::string_view sign) const;

 private:
  std::vector<std::string_view> tokens_;
};

// `text` without the signs of special tokens.
std::string WithoutSigns(std::string_view text);

// Looks for marker strings in text. Immutable, thread-safe.
class Markers final {
 public:
  explicit Markers(std::vector<std::string> markers);

  struct Found {
    size_t at = 0;    // of the first marker, or of the first possible beginning of one
    int marker = -1;  // the index; -1: no whole marker in the text
  };
  // A marker that may begin at the end of `text`, or be the beginning of a longer one, counts as a
  // beginning. `at` is the length of the text when there is none. `last`: no text follows.
  Found Find(std::string_view text, bool last = false) const;

  const std::string& operator[](int marker) const { return markers_[static_cast<size_t>(marker)]; }

 private:
  std::vector<std::string> markers_;
  std::string first_;  // the different first bytes
};

// Removes markers from text that arrives in parts. Not thread-safe.
class MarkerRemover final {
 public:
  explicit MarkerRemover(std::vector<std::string> markers) : markers_(std::move(markers)) {}

  // Returns the text without markers, but for what may be the beginning of one.
  std::string Append(std::string_view text);
  // What was held back.
  std::string Finish();

 private:
  const Markers markers_;
  std::string held_;
};

// Whether `text` begins with `literal`. kMaybe: it ends within the literal.
enum class Begins : uint8_t { kNo, kMaybe, kYes };
inline Begins BeginsWith(std::string_view text, std::string_view literal) {
  if (text.starts_with(literal)) return Begins::kYes;
  return literal.starts_with(text) ? Begins::kMaybe : Begins::kNo;
}

inline bool IsSpace(char c) {
  return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

// The length of the white space at the front of `text`.
inline size_t SpaceAtFront(std::string_view text) {
  size_t length = 0;
  while (length < text.size() && IsSpace(text[length])) ++length;
  return length;
}

inline std::string_view Trimmed(std::string_view text) {
  text.remove_prefix(SpaceAtFront(text));
  while (!text.empty() && IsSpace(text.back())) text.remove_suffix(1);
  return text;
}

}  // namespace baton
