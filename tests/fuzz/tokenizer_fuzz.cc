#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/check.h"
#include "common/text/detokenizer.h"
#include "common/text/gguf_tokenizer.h"
#include "common/text/hf_tokenizer.h"
#include "common/text/metaspace.h"
#include "common/text/sentencepiece_tokenizer.h"
#include "common/text/stop_matcher.h"
#include "common/text/tekken_tokenizer.h"
#include "common/text/tiktoken_tokenizer.h"
#include "common/text/tokenizer.h"
#include "common/text/utf8.h"

namespace baton {
namespace {

// A file of a tokenizer that may be anything: what is accepted encodes and decodes `text`.
void CheckFile(const StatusOr<TokenizerSpec>& spec, std::string_view text) {
  if (!spec.ok()) return;
  const auto tokenizer = Tokenizer::Create(*spec);
  if (!tokenizer.ok()) return;
  tokenizer->Decode(tokenizer->Encode(text, {.add_special = true, .parse_special = true}), false);
}

// A tokenizer with all bytes, a few merges and added tokens with every flag.
Tokenizer SmallTokenizer(BpeAlphabet alphabet, std::vector<SplitStep> splits) {
  TokenizerSpec spec;
  spec.alphabet = alphabet;
  const bool bytes = alphabet == BpeAlphabet::kBytes;
  for (int b = 0; b < 256; ++b) {
    spec.pieces.push_back(
        {std::string(1, static_cast<char>(b)), bytes ? PieceKind::kNormal : PieceKind::kByte});
  }
  if (!bytes) {
    for (const char* piece : {"a", "b", " ", "\xE2\x96\x81", "1", "\xC3\xA9"}) {
      spec.pieces.push_back({piece, PieceKind::kNormal});
    }
    spec.byte_fallback = true;
    spec.metaspace = true;
    spec.prefix_space = PrefixSpace::kFirst;
  }
  const size_t first = spec.pieces.size();
  for (TokenId i = 0; i < 24; ++i) {
    const auto range = static_cast<TokenId>(bytes ? 128 : 6);
    const TokenId base = bytes ? 0 : 256;
    const TokenId left = i < 8 ? base + 97 * (i + 1) % range : static_cast<TokenId>(first) + i - 8;
    const TokenId right = base + (bytes ? 32 + 65 * i % 90 : i % range);
    const auto result = static_cast<TokenId>(spec.pieces.size());
    spec.pieces.push_back({spec.pieces[static_cast<size_t>(left)].bytes +
                               spec.pieces[static_cast<size_t>(right)].bytes,
                           PieceKind::kNormal});
    spec.merges.push_back({left, right, result, static_cast<uint32_t>(i / 2)});
  }
  const char* const added[] = {"<s>", "<sx>", "aa", "  ", "\xC3\xA9t", "word"};
  for (int i = 0; i < 6; ++i) {
    const auto id = static_cast<TokenId>(spec.pieces.size());
    spec.pieces.push_back({added[i], i < 2 ? PieceKind::kControl : PieceKind::kUserDefined});
    spec.added.push_back({.id = id,
                          .text = added[i],
                          .special = i < 2,
                          .single_word = i == 5,
                          .normalized = i == 4});
  }
  spec.splits = std::move(splits);
  auto tokenizer = Tokenizer::Create(std::move(spec));
  BATON_CHECK(tokenizer.ok(), "{}", Message(tokenizer.status()));
  return *std::move(tokenizer);
}

const std::vector<Tokenizer>& Tokenizers() {
  static const auto* tokenizers = [] {
    auto* all = new std::vector<Tokenizer>();
    for (const PatternKind kind : {PatternKind::kGpt2,
                                   PatternKind::kSmolLm,
                                   PatternKind::kLlama3,
                                   PatternKind::kQwen2,
                                   PatternKind::kTekken}) {
      all->push_back(
          SmallTokenizer(BpeAlphabet::kBytes,
                         {{.kind = SplitStep::Kind::kPattern, .pattern = kind, .regex = ""}}));
    }
    all->push_back(
        SmallTokenizer(BpeAlphabet::kBytes,
                       {{.kind = SplitStep::Kind::kRegex, .regex = R"(\w+|[^\s\w]{1,3}(?=\s))"}}));
    all->push_back(SmallTokenizer(BpeAlphabet::kCharacters, {}));
    return all;
  }();
  return *tokenizers;
}

std::string Stream(const Tokenizer& tokenizer,
                   const std::vector<TokenId>& tokens,
                   StopMatcher& stops) {
  Detokenizer detokenizer(tokenizer, {.skip_special = false, .continues_text = true});
  std::string text;
  for (const TokenId token : tokens) {
    const std::string part = detokenizer.Append(token);
    BATON_CHECK(IsValidUtf8(part), "the detokenizer cut a character");
    const std::string shown = stops.Append(part);
    BATON_CHECK(IsValidUtf8(shown), "the stop matcher cut a character");
    text += shown;
  }
  text += stops.Append(detokenizer.Flush());
  return text + stops.Flush();
}

void CheckEncoding(const Tokenizer& tokenizer, std::string_view text) {
  const std::string valid = ReplaceInvalidUtf8(text);
  BATON_CHECK(IsValidUtf8(valid), "not replaced");
  for (const bool parse_special : {false, true}) {
    const auto tokens =
        tokenizer.Encode(text, {.add_special = true, .parse_special = parse_special});
    BATON_CHECK(
        tokens.size() <= valid.size() + 3, "{} tokens of {} bytes", tokens.size(), valid.size());
    for (const TokenId token : tokens) {
      BATON_CHECK(tokenizer.Contains(token), "token {}", token);
      BATON_CHECK(parse_special || !tokenizer.is_special(token), "a special token from plain text");
    }
    StopMatcher none(std::make_shared<const StopStrings>(*StopStrings::Create({})), false);
    const std::string decoded = Stream(tokenizer, tokens, none);
    if (tokenizer.spec().alphabet == BpeAlphabet::kBytes) {
      BATON_CHECK(decoded == valid, "'{}' came back as '{}'", valid, decoded);
    }
  }
  const TextSegment segments[] = {{"<s>", true}, {std::string(text), false}, {"<sx>", true}};
  int specials = 0;
  for (const TokenId token : tokenizer.EncodeSegments(segments, false))
    specials += tokenizer.is_special(token) ? 1 : 0;
  BATON_CHECK(specials == 2, "{} special tokens where the frame has 2", specials);
}

void CheckStops(const Tokenizer& tokenizer, std::string_view text) {
  const std::string valid = ReplaceInvalidUtf8(text);
  const std::string stop = valid.substr(0, IsValidUtf8(valid.substr(0, 4)) ? 4 : 0);
  const auto strings =
      StopStrings::Create(std::vector<std::string>{"a\n", stop.empty() ? "x" : stop});
  BATON_CHECK(strings.ok(), "{}", Message(strings.status()));
  StopMatcher matcher(std::make_shared<const StopStrings>(*strings), false);
  const std::string shown = Stream(tokenizer, tokenizer.Encode(valid, {}), matcher);
  BATON_CHECK(shown.find("a\n") == std::string::npos, "a stop string was shown");
}

}  // namespace
}  // namespace baton

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace baton;  // NOLINT(google-build-using-namespace)
  if (size == 0 || size > 4096) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  if (data[0] == '{') {
    const std::string_view json(reinterpret_cast<const char*>(data), size);
    CheckFile(TokenizerSpecFromJson(json, ""), json);
    return 0;
  }
  if (data[0] == '#') {
    CheckFile(TokenizerSpecFromTiktoken(text, R"({"tokenizer_class":"TikTokenTokenizer"})"), text);
    return 0;
  }
  if (data[0] == '%') {
    CheckFile(TokenizerSpecFromTekken(text), text);
    return 0;
  }
  if (data[0] == '&') {
    CheckFile(TokenizerSpecFromSentencePiece(text, ""), text);
    return 0;
  }
  const auto& tokenizers = Tokenizers();
  const Tokenizer& tokenizer = tokenizers[data[0] % tokenizers.size()];
  CheckEncoding(tokenizer, text);
  if (tokenizer.spec().alphabet == BpeAlphabet::kBytes) CheckStops(tokenizer, text);
  return 0;
}
