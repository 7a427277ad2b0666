#include <memory>
#include <optional>
#include <utility>

#include <absl/strings/escaping.h>
#include <nlohmann/json.hpp>

#include "common/text/hf_json.h"
#include "common/text/metaspace.h"
#include "common/text/piece_scanner.h"

namespace baton {
namespace {

using nlohmann::json;

Status Unsupported(std::string_view part, std::string_view type, std::string_view known) {
  return absl::UnimplementedError(fmt::format(
      "tokenizer.json: {} of type '{}' is not supported; supported: {}", part, type, known));
}

// A `pattern` member: {"String": s} or {"Regex": s}.
struct Pattern {
  std::string text;
  bool regex = false;
};

StatusOr<Pattern> ReadPattern(std::string_view part, const json& component) {
  const json& pattern = MemberOf(component, "pattern");
  for (const bool regex : {false, true}) {
    const json& text = MemberOf(pattern, regex ? "Regex" : "String");
    if (text.is_string()) return Pattern{text.get<std::string>(), regex};
  }
  return InvalidArgument("tokenizer.json: {} needs a pattern with a String or a Regex", part);
}

std::string QuoteForRegex(std::string_view text) {
  std::string quoted;
  for (const char c : text) {
    const bool plain =
        (c & 0x80) || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    quoted.append(plain ? 0 : 1, '\\').push_back(c);
  }
  return quoted;
}

SplitStep PatternStep(PatternKind kind) {
  return {.kind = SplitStep::Kind::kPattern, .pattern = kind, .regex = ""};
}

Status ReadSplit(const json& component, TokenizerSpec& spec) {
  BATON_ASSIGN_OR_RETURN(const Pattern pattern, ReadPattern("a Split pre-tokenizer", component));
  const std::string behavior = TextMember(component, "behavior");
  const std::string regex = pattern.regex ? pattern.text : QuoteForRegex(pattern.text);
  const auto known = KnownPattern(regex);
  // Matches and the text between them become pieces alike, so `invert` changes nothing. `Removed`
  // with `invert` removes the text between matches; a known pattern covers all text, so that there
  // is nothing to remove.
  const bool inverted_removal =
      behavior == "Removed" && BoolMember(component, "invert", false) && known;
  if (behavior != "Isolated" && !inverted_removal) {
    return Unsupported("a Split pre-tokenizer's behavior", behavior, "Isolated");
  }
  if (known) {
    spec.splits.push_back(PatternStep(*known));
  } else {
    spec.splits.push_back({.kind = SplitStep::Kind::kRegex, .regex = regex});
  }
  return OkStatus();
}

StatusOr<PrefixSpace> ReadPrependScheme(const json& component) {
  const std::string scheme =
      TextMember(component,
                 "prepend_scheme",
                 BoolMember(component, "add_prefix_space", true) ? "always" : "never");
  if (scheme == "always") return PrefixSpace::kAlways;
  if (scheme == "first") return PrefixSpace::kFirst;
  if (scheme == "never") return PrefixSpace::kNone;
  return InvalidArgument(
      "tokenizer.json: prepend_scheme is '{}'; it must be always, first or never", scheme);
}

Status ReadMetaspace(const json& component, TokenizerSpec& spec) {
  const std::string replacement = TextMember(component, "replacement", kMetaspace);
  if (replacement != kMetaspace) {
    return Unsupported("a Metaspace replacement", replacement, "U+2581");
  }
  BATON_ASSIGN_OR_RETURN(spec.prefix_space, ReadPrependScheme(component));
  spec.metaspace = true;
  if (BoolMember(component, "split", true)) {
    spec.splits.push_back({.kind = SplitStep::Kind::kBeforeMetaspace, .regex = ""});
  }
  return OkStatus();
}

// SmolLM splits off single digits and then applies GPT-2's pattern. One scanner does both steps.
void FuseDigitsAndGpt2(TokenizerSpec& spec) {
  using Kind = SplitStep::Kind;
  auto& splits = spec.splits;
  if (splits.size() == 2 && splits[0].kind == Kind::kDigits && splits[1].kind == Kind::kPattern &&
      splits[1].pattern == PatternKind::kGpt2) {
    splits = {PatternStep(PatternKind::kSmolLm)};
  }
}

Status ReadPreTokenizerStep(const json& component, TokenizerSpec& spec) {
  const std::string type = TypeOf(component);
  if (type == "null") return OkStatus();
  if (type == "Sequence") {
    for (const json& part : MemberOf(component, "pretokenizers")) {
      if (TypeOf(part) == "Sequence")
        return Unsupported("a pre-tokenizer inside a Sequence", "Sequence", "all other types");
      BATON_RETURN_IF_ERROR(ReadPreTokenizerStep(part, spec));
    }
    return OkStatus();
  }
  if (type == "ByteLevel") {
    if (BoolMember(component, "add_prefix_space", true)) {
      if (!spec.splits.empty())
        return Unsupported("add_prefix_space after a split", type, "before all splits");
      spec.prefix_space = PrefixSpace::kAlways;
    }
    if (BoolMember(component, "use_regex", true))
      spec.splits.push_back(PatternStep(PatternKind::kGpt2));
    return OkStatus();
  }
  if (type == "Digits") {
    const bool single = BoolMember(component, "individual_digits", false);
    spec.splits.push_back(
        {.kind = single ? SplitStep::Kind::kDigits : SplitStep::Kind::kDigitRuns, .regex = ""});
    return OkStatus();
  }
  if (type == "Split") return ReadSplit(component, spec);
  if (type == "Metaspace") return ReadMetaspace(component, spec);
  return Unsupported("a pre-tokenizer", type, "ByteLevel, Digits, Metaspace, Sequence and Split");
}

Status ReadReplace(const json& component, TokenizerSpec& spec) {
  using Kind = NormalizerStep::Kind;
  // The one expression that converters of SentencePiece's files write.
  constexpr std::string_view kManySpaces = " {2,}";
  BATON_ASSIGN_OR_RETURN(const Pattern pattern, ReadPattern("a Replace normalizer", component));
  if (pattern.regex && pattern.text != kManySpaces) {
    return Unsupported("a Replace normalizer's Regex", pattern.text, "' {2,}'");
  }
  spec.normalizer.push_back({.kind = pattern.regex ? Kind::kJoinSpaces : Kind::kReplace,
                             .from = pattern.text,
                             .to = TextMember(component, "content")});
  return OkStatus();
}

Status ReadCharsmap(const json& component, TokenizerSpec& spec) {
  std::string bytes;
  if (!absl::Base64Unescape(TextMember(component, "precompiled_charsmap"), &bytes)) {
    return InvalidArgument("tokenizer.json: precompiled_charsmap must be a text in base64");
  }
  auto map = Charsmap::Parse(bytes);
  if (!map.ok()) return Annotate(map.status(), "tokenizer.json");
  spec.normalizer.push_back({.kind = NormalizerStep::Kind::kCharsmapByGrapheme,
                             .charsmap = std::make_shared<const Charsmap>(*std::move(map))});
  return OkStatus();
}

}  // namespace

Status ReadNormalizer(const json& component, TokenizerSpec& spec) {
  using Kind = NormalizerStep::Kind;
  const std::string type = TypeOf(component);
  if (type == "null") return OkStatus();
  if (type == "Sequence") {
    for (const json& part : MemberOf(component, "normalizers")) {
      if (TypeOf(part) == "Sequence")
        return Unsupported("a normalizer inside a Sequence", "Sequence", "all other types");
      BATON_RETURN_IF_ERROR(ReadNormalizer(part, spec));
    }
    return OkStatus();
  }
  const std::pair<const char*, Kind> forms[] = {
      {"NFC", Kind::kNfc}, {"NFD", Kind::kNfd}, {"NFKC", Kind::kNfkc}, {"NFKD", Kind::kNfkd}};
  for (const auto& [name, kind] : forms) {
    if (type == name) {
      spec.normalizer.push_back({.kind = kind, .from = "", .to = ""});
      return OkStatus();
    }
  }
  if (type == "Prepend") {
    spec.normalizer.push_back(
        {.kind = Kind::kPrepend, .from = "", .to = TextMember(component, "prepend")});
    return OkStatus();
  }
  if (type == "Replace") return ReadReplace(component, spec);
  if (type == "Strip") {
    if (BoolMember(component, "strip_left", true)) spec.normalizer.push_back({Kind::kStripLeft});
    if (BoolMember(component, "strip_right", true)) spec.normalizer.push_back({Kind::kStripRight});
    return OkStatus();
  }
  if (type == "Precompiled") return ReadCharsmap(component, spec);
  return Unsupported("a normalizer",
                     type,
                     "NFC, NFD, NFKC, NFKD, Precompiled, Prepend, Replace, Sequence and Strip");
}

Status ReadPreTokenizer(const json& component, TokenizerSpec& spec) {
  BATON_RETURN_IF_ERROR(ReadPreTokenizerStep(component, spec));
  FuseDigitsAndGpt2(spec);
  return OkStatus();
}

Status ReadDecoder(const json& component, TokenizerSpec& spec) {
  const std::string type = TypeOf(component);
  if (type == "Sequence") {
    for (const json& part : MemberOf(component, "decoders")) {
      if (TypeOf(part) == "Sequence")
        return Unsupported("a decoder inside a Sequence", "Sequence", "all other types");
      BATON_RETURN_IF_ERROR(ReadDecoder(part, spec));
    }
    return OkStatus();
  }
  if (type == "Strip") {
    const json& start = MemberOf(component, "start");
    const json& stop = MemberOf(component, "stop");
    if (TextMember(component, "content") != " " || start != 1 || stop != 0) {
      return Unsupported(
          "a Strip decoder", TextMember(component, "content"), "one space at the start");
    }
    spec.strip_first_space = true;
    return OkStatus();
  }
  if (type == "Metaspace") {
    BATON_ASSIGN_OR_RETURN(const PrefixSpace scheme, ReadPrependScheme(component));
    spec.strip_first_space = scheme != PrefixSpace::kNone;
    return OkStatus();
  }
  if (type == "Replace") {
    BATON_ASSIGN_OR_RETURN(const Pattern pattern, ReadPattern("a Replace decoder", component));
    if (pattern.text == kMetaspace && TextMember(component, "content") == " ") return OkStatus();
    return Unsupported("a Replace decoder", pattern.text, "U+2581 by a space");
  }
  if (type == "null" || type == "ByteLevel" || type == "ByteFallback" || type == "Fuse")
    return OkStatus();
  return Unsupported(
      "a decoder", type, "ByteFallback, ByteLevel, Fuse, Metaspace, Replace, Sequence and Strip");
}

}  // namespace baton
