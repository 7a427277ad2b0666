#include "common/text/normalizer.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdint>
#include <utility>

#include "common/base/check.h"
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

// `begins`: `text` is the beginning of the whole text, which is where kPrepend applies.
std::string ApplyStep(const NormalizerStep& step, std::string text, bool begins) {
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
    out = ApplyStep(step, std::move(out), /*begins=*/true);
  }
  return out;
}

std::optional<std::vector<std::string>> Normalizer::ApplyToParts(
    std::span<const std::string_view> parts) const {
  std::vector<std::string> out(parts.begin(), parts.end());
  for (const NormalizerStep& step : steps_) {
    std::string whole = Join(out);
    if (whole.empty()) return out;
    whole = ApplyStep(step, std::move(whole), /*begins=*/true);
    bool begins = true;
    for (std::string& part : out) {
      if (part.empty()) continue;
      part = ApplyStep(step, std::move(part), std::exchange(begins, false));
    }
    if (Join(out) != whole) return std::nullopt;
  }
  return out;
}

}  // namespace baton
