#include "common/text/normalizer.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdint>
#include <utility>

#include "common/base/check.h"
#include "common/text/metaspace.h"
#include "common/text/unicode_class.h"
#include "common/text/utf8.h"

namespace baton {
namespace {

int CombiningClass(utf8proc_int32_t c) {
  return utf8proc_get_property(c)->combining_class;
}

// Canonical Ordering Algorithm (Unicode 15, D109): sorts each run of marks stably by class.
void OrderMarks(std::vector<utf8proc_int32_t>& text) {
  for (auto it = text.begin(); it != text.end();) {
    it = std::find_if(it, text.end(), [](auto c) { return CombiningClass(c) != 0; });
    const auto end = std::find_if(it, text.end(), [](auto c) { return CombiningClass(c) == 0; });
    if (end - it > 1) {
      std::stable_sort(
          it, end, [](auto a, auto b) { return CombiningClass(a) < CombiningClass(b); });
    }
    it = end;
  }
}

// Used instead of utf8proc_map, which orders marks in quadratic time.
std::string NormalForm(std::string_view text, bool compatibility, bool compose) {
  const int decompose =
      UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | (compatibility ? UTF8PROC_COMPAT : 0);
  std::vector<utf8proc_int32_t> decomposed;
  decomposed.reserve(text.size());
  for (size_t pos = 0; pos < text.size();) {
    const CodePoint c = DecodeUtf8(text, pos);
    pos += c.length;
    constexpr utf8proc_ssize_t kLongest = 32;  // the longest decomposition has 18 characters
    utf8proc_int32_t buffer[kLongest];
    int boundary = 0;
    const auto count = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c.value),
                                               buffer,
                                               kLongest,
                                               static_cast<utf8proc_option_t>(decompose),
                                               &boundary);
    BATON_CHECK(count >= 0 && count <= kLongest, "decomposition of U+{:04X}", uint32_t{c.value});
    decomposed.insert(decomposed.end(), buffer, buffer + count);
  }
  OrderMarks(decomposed);
  if (compose && !decomposed.empty()) {
    const auto options = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE);
    const auto count = utf8proc_normalize_utf32(
        decomposed.data(), static_cast<utf8proc_ssize_t>(decomposed.size()), options);
    BATON_CHECK(count >= 0, "composition failed with {}", count);
    decomposed.resize(static_cast<size_t>(count));
  }
  std::string out;
  out.reserve(text.size());
  for (const auto c : decomposed) AppendUtf8(out, static_cast<char32_t>(c));
  return out;
}

bool IsAscii(std::string_view text) {
  return std::all_of(
      text.begin(), text.end(), [](char c) { return static_cast<uint8_t>(c) < 0x80; });
}

std::string Join(std::span<const std::string> parts) {
  std::string whole;
  for (const std::string& part : parts) whole += part;
  return whole;
}

std::string JoinSpaces(std::string_view text, std::string_view to) {
  std::string out;
  out.reserve(text.size());
  for (size_t pos = 0; pos < text.size();) {
    const size_t end = std::min(text.find_first_not_of(' ', pos), text.size());
    if (end - pos >= 2) out.append(to);
    if (end - pos == 1) out.push_back(' ');
    const size_t next = std::min(text.find(' ', end), text.size());
    out.append(text.substr(end, next - end));
    pos = next;
  }
  return out;
}

std::string_view StrippedLeft(std::string_view text) {
  while (!text.empty()) {
    const CodePoint c = DecodeUtf8(text, 0);
    if (!IsUnicodeSpace(c.value)) break;
    text.remove_prefix(c.length);
  }
  return text;
}

std::string_view StrippedRight(std::string_view text) {
  while (!text.empty()) {
    size_t last = text.size() - 1;
    while (last > 0 && (static_cast<uint8_t>(text[last]) & 0xC0) == 0x80) --last;
    if (!IsUnicodeSpace(DecodeUtf8(text, last).value)) break;
    text.remove_suffix(text.size() - last);
  }
  return text;
}

// As remove_extra_whitespaces of SentencePiece, which cannot tell a '▁' of the text at its end from
// a space. `begins` and `ends`: whether the beginning and the end are trimmed.
std::string_view WithoutSpaces(std::string_view text, bool begins, bool ends) {
  while (begins && text.starts_with(' ')) text.remove_prefix(1);
  while (ends) {
    const size_t size = text.ends_with(kMetaspace) ? kMetaspace.size() : 1;
    if (size == 1 && !text.ends_with(' ')) break;
    text.remove_suffix(size);
  }
  return text;
}

// The longest text of the map is replaced first, from left to right.
std::string ApplyCharsmap(const Charsmap& map, std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const auto match = map.Longest(text);
    const size_t length = match ? match->length : DecodeUtf8(text, 0).length;
    out.append(match ? match->replacement : text.substr(0, length));
    text.remove_prefix(length);
  }
  return out;
}

// The bytes of the grapheme cluster that `text` begins with.
size_t GraphemeLength(std::string_view text) {
  CodePoint last = DecodeUtf8(text, 0);
  size_t length = last.length;
  utf8proc_int32_t state = 0;
  while (length < text.size()) {
    const CodePoint next = DecodeUtf8(text, length);
    if (utf8proc_grapheme_break_stateful(static_cast<utf8proc_int32_t>(last.value),
                                         static_cast<utf8proc_int32_t>(next.value),
                                         &state)) {
      break;
    }
    length += next.length;
    last = next;
  }
  return length;
}

// As Precompiled of Hugging Face's tokenizers (spm_precompiled 0.1.4): a short grapheme cluster
// whose beginning is in the map becomes its replacement, else each of its characters does.
std::string ApplyCharsmapByGrapheme(const Charsmap& map, std::string_view text) {
  constexpr size_t kShort = 6;  // bytes
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    std::string_view grapheme = text.substr(0, GraphemeLength(text));
    text.remove_prefix(grapheme.size());
    if (grapheme.size() < kShort) {
      if (const auto match = map.Shortest(grapheme)) {
        out.append(match->replacement);
        continue;
      }
    }
    while (!grapheme.empty()) {
      const std::string_view character = grapheme.substr(0, DecodeUtf8(grapheme, 0).length);
      const auto match = map.Shortest(character);
      out.append(match ? match->replacement : character);
      grapheme.remove_prefix(character.size());
    }
  }
  return out;
}

// `begins` and `ends`: `text` is the beginning or the end of the whole text.
std::string ApplyStep(const NormalizerStep& step, std::string text, bool begins, bool ends) {
  using Kind = NormalizerStep::Kind;
  switch (step.kind) {
    case Kind::kNfc:
    case Kind::kNfd:
    case Kind::kNfkc:
    case Kind::kNfkd:
      if (IsAscii(text)) return text;
      return NormalForm(text,
                        step.kind == Kind::kNfkc || step.kind == Kind::kNfkd,
                        step.kind == Kind::kNfc || step.kind == Kind::kNfkc);
    case Kind::kReplace:
      return ReplaceAll(text, step.from, step.to);
    case Kind::kPrepend:
      return begins ? step.to + text : text;
    case Kind::kJoinSpaces:
      return JoinSpaces(text, step.to);
    case Kind::kTrimSpaces:
      return std::string(WithoutSpaces(text, begins, ends));
    case Kind::kStripLeft:
      return begins ? std::string(StrippedLeft(text)) : text;
    case Kind::kStripRight:
      return ends ? std::string(StrippedRight(text)) : text;
    case Kind::kCharsmap:
      return ApplyCharsmap(*step.charsmap, text);
    case Kind::kCharsmapByGrapheme:
      return ApplyCharsmapByGrapheme(*step.charsmap, text);
  }
  return text;
}

}  // namespace

std::string ReplaceAll(std::string_view text, std::string_view from, std::string_view to) {
  std::string out;
  out.reserve(text.size());
  size_t pos = 0;
  while (!from.empty()) {
    const size_t found = text.find(from, pos);
    if (found == std::string_view::npos) break;
    out.append(text, pos, found - pos).append(to);
    pos = found + from.size();
  }
  return out.append(text.substr(pos));
}

std::string Normalizer::Apply(std::string_view text) const {
  std::string out(text);
  for (const NormalizerStep& step : steps_) {
    if (out.empty()) return out;
    out = ApplyStep(step, std::move(out), /*begins=*/true, /*ends=*/true);
  }
  return out;
}

std::optional<std::vector<std::string>> Normalizer::ApplyToParts(
    std::span<const std::string_view> parts) const {
  std::vector<std::string> out(parts.begin(), parts.end());
  for (const NormalizerStep& step : steps_) {
    std::string whole = Join(out);
    if (whole.empty()) return out;
    whole = ApplyStep(step, std::move(whole), /*begins=*/true, /*ends=*/true);
    const auto last = std::ranges::find_if(
        out.rbegin(), out.rend(), [](const std::string& part) { return !part.empty(); });
    bool begins = true;
    for (std::string& part : out) {
      if (part.empty()) continue;
      const bool ends = &part == &*last;
      part = ApplyStep(step, std::move(part), std::exchange(begins, false), ends);
    }
    if (Join(out) != whole) return std::nullopt;
  }
  return out;
}

}  // namespace baton
