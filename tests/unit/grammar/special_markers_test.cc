// Calls whose markers are special tokens: the grammar and the parser take only these tokens for
// markers, and the same text in ordinary tokens for text.
#include <algorithm>
#include <iterator>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "common/chat_format/call_syntax.h"
#include "common/chat_format/chat_parser.h"
#include "common/grammar/call_grammar.h"
#include "common/grammar/grammar_spec.h"
#include "common/grammar/schema_check.h"
#include "common/grammar/tagged_calls.h"
#include "common/grammar/xgrammar/grammar_compiler.h"
#include "kernels/token_mask.h"
#include "tests/support/byte_tokenizer.h"
#include "tests/unit/grammar/grammar_walk.h"

namespace baton {
namespace {

using Json = nlohmann::ordered_json;
using Kind = ChatEvent::Kind;
using Tokens = std::vector<TokenId>;

constexpr const char* kTools = R"([
  {"type": "function", "function": {"name": "weather", "parameters": {"type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer", "minimum": 1, "maximum": 12},
                   "units": {"enum": ["C", "F"]}},
    "required": ["city", "days"]}}},
  {"type": "function", "function": {"name": "now", "parameters": {"type": "object",
    "properties": {"zone": {"type": "string", "enum": ["UTC", "CET"]}}, "required": ["zone"]}}}])";

// The formats with markers that may be special tokens, but for those whose calls have none.
std::vector<ToolCallFormat> Marked() {
  std::vector<ToolCallFormat> formats;
  for (int i = 1; i <= static_cast<int>(kLastToolCallFormat); ++i) {
    const auto format = static_cast<ToolCallFormat>(i);
    if (!TokensOf(format).empty() && !PlainSyntaxOf(format).bare) formats.push_back(format);
  }
  return formats;
}

// `text` in tokens of single bytes.
Tokens Bytes(std::string_view text) {
  Tokens tokens;
  for (const char c : text) tokens.push_back(static_cast<uint8_t>(c));
  return tokens;
}

// `text` with its `markers` as special tokens.
Tokens WithSpecial(std::string_view text,
                   const std::vector<std::string_view>& markers,
                   const Tokenizer& tokenizer) {
  Tokens tokens;
  while (!text.empty()) {
    std::string_view next = text.substr(0, 1);
    for (const std::string_view marker : markers) {
      if (text.starts_with(marker) && marker.size() > next.size()) next = marker;
    }
    const bool byte = next.size() == 1;
    tokens.push_back(byte ? static_cast<uint8_t>(next.front()) : *tokenizer.Find(next));
    text.remove_prefix(next.size());
  }
  return tokens;
}

bool Begins(const Grammar& grammar, const Tokens& tokens, const Tokenizer& tokenizer) {
  const auto matcher = grammar.NewMatcher(tokenizer.spec().eos);
  return std::ranges::all_of(tokens, [&](TokenId token) { return matcher->Accept(token); });
}

class SpecialMarkersTest : public ::testing::TestWithParam<ToolCallFormat> {
 protected:
  SpecialMarkersTest()
      : formats_{.calls = GetParam(),
                 .reasoning = harmony() ? ReasoningFormat::kHarmony : ReasoningFormat::kNone,
                 .special = SpecialMarkers(TokensOf(GetParam()))},
        tokenizer_(BytesAnd({"{\"", "\": ", "true", "\">", "</"}, TokensOf(GetParam()))),
        compiler_(CompilerFor(tokenizer_)) {
    const SchemaUse use = EndsAtMarkers(GetParam()) ? SchemaUse::kCall : SchemaUse::kJson;
    for (const Json& tool : json_tools_) {
      const Json& function = tool["function"];
      callable_.push_back({function["name"],
                           CheckedSchema(function["parameters"], GrammarLimits(), use).value(),
                           function["parameters"]});
    }
  }

  // Only the section of calls has a special token.
  bool opening_is_text() const {
    const CallSyntax& syntax = PlainSyntaxOf(GetParam());
    return !syntax.openings.empty() && formats_.Signed(syntax.openings[0]) == syntax.openings[0];
  }
  static bool harmony() { return GetParam() == ToolCallFormat::kHarmony; }
  TokenId end() const { return tokenizer_.spec().eos[0]; }

  std::shared_ptr<const Grammar> Forced(bool one) {
    return CompileNow(*compiler_, GrammarSpec(CallsPart(formats_, callable_, one).value()));
  }
  std::shared_ptr<const Grammar> Strict() {
    return CompileNow(*compiler_,
                      GrammarSpec(TextWithCallsPart(formats_, callable_, false).value()));
  }

  Tokens WithMarkers(std::string_view text) const {
    return WithSpecial(text, TokensOf(GetParam()), tokenizer_);
  }

  std::string TextOf(const Tokens& tokens) const {
    std::string text;
    for (const TokenId token : tokens) text += tokenizer_.piece(token);
    return text;
  }

  bool IsOutput(const Grammar& grammar, Tokens tokens) const {
    tokens.push_back(end());
    return Begins(grammar, tokens, tokenizer_);
  }

  // Events of the parser, with its content and reasoning joined into `text`.
  struct Parsed {
    std::string text;
    std::vector<std::pair<std::string, std::string>> calls;
  };
  Parsed Parse(const Tokens& tokens, const SpecialMarkers& special) const {
    ChatParser parser({.calls = formats_.calls,
                       .reasoning = formats_.reasoning,
                       .tools = std::make_shared<const ToolSchemas>(json_tools_),
                       .special = special});
    std::vector<ChatEvent> events;
    const auto add = [&](std::vector<ChatEvent> more) {
      std::ranges::move(more, std::back_inserter(events));
    };
    for (const TokenId token : tokens) {
      const std::string_view piece = tokenizer_.piece(token);
      add(tokenizer_.is_special(token) ? parser.AppendSpecial(piece) : parser.Append(piece));
    }
    if (harmony()) add(parser.AppendSpecial("<|call|>"));  // the stop token
    add(parser.Finish());
    Parsed parsed;
    for (const ChatEvent& event : events) {
      if (event.kind == Kind::kCallBegin) parsed.calls.push_back({event.text, ""});
      if (event.kind == Kind::kArguments) parsed.calls.back().second += event.text;
      if (event.kind == Kind::kContent || event.kind == Kind::kReasoning) parsed.text += event.text;
      EXPECT_NE(event.kind, Kind::kCallFailed) << TextOf(tokens);
    }
    return parsed;
  }
  Parsed Parse(const Tokens& tokens) const { return Parse(tokens, formats_.special); }

  static void ExpectValid(const std::pair<std::string, std::string>& call) {
    const Json arguments = Json::parse(call.second, nullptr, false);
    ASSERT_TRUE(arguments.is_object()) << call.second;
    if (call.first == "now") {
      ASSERT_EQ(arguments.size(), 1u);
      EXPECT_TRUE(arguments["zone"] == "UTC" || arguments["zone"] == "CET") << call.second;
      return;
    }
    ASSERT_EQ(call.first, "weather");
    ASSERT_TRUE(arguments.contains("city") && arguments["city"].is_string()) << call.second;
    ASSERT_TRUE(arguments.contains("days") && arguments["days"].is_number_integer());
    EXPECT_TRUE(arguments["days"] >= 1 && arguments["days"] <= 12) << call.second;
    EXPECT_TRUE(!arguments.contains("units") || arguments["units"] == "C" ||
                arguments["units"] == "F");
  }

  // A random output of the grammar that begins with `begin`.
  Tokens RandomTokens(const Grammar& grammar, const Tokens& begin = {}) {
    for (int i = 0; i < 100; ++i) {
      if (Tokens tokens = Walk(grammar, begin); !tokens.empty()) return tokens;
    }
    ADD_FAILURE() << "no output ends";
    return {end()};
  }

  // Empty when the output does not end soon. The tokens that end a text are preferred.
  Tokens Walk(const Grammar& grammar, const Tokens& begin) {
    constexpr size_t kMost = 600;
    const auto vocabulary = static_cast<int32_t>(tokenizer_.vocab_size());
    const auto matcher = grammar.NewMatcher(tokenizer_.spec().eos);
    std::vector<uint32_t> mask(MaskWords(vocabulary));
    Tokens tokens = begin;
    for (const TokenId token : tokens) EXPECT_TRUE(matcher->Accept(token)) << TextOf(tokens);
    while (tokens.size() < kMost) {
      matcher->FillMask(mask);
      EXPECT_FALSE(Allows(mask, 0xFF));
      Tokens allowed;
      Tokens ending;
      for (TokenId token = 0; token < vocabulary; ++token) {
        if (!Allows(mask, token)) continue;
        allowed.push_back(token);
        const std::string_view piece = tokenizer_.piece(token);
        const bool ends = piece == "\"" || piece == "}" || piece == "]" || piece == "<";
        if (ends || tokenizer_.is_special(token)) ending.push_back(token);
      }
      EXPECT_FALSE(allowed.empty()) << TextOf(tokens);
      if (allowed.empty()) return {};
      const Tokens& from = !ending.empty() && random_() % 2 == 0 ? ending : allowed;
      const TokenId token = from[random_() % from.size()];
      EXPECT_TRUE(matcher->Accept(token)) << token << " after " << TextOf(tokens);
      if (token == end()) return tokens;
      tokens.push_back(token);
    }
    return {};
  }

  const Json json_tools_ = Json::parse(kTools);
  const MarkedFormats formats_;
  const Tokenizer tokenizer_;
  const std::unique_ptr<GrammarCompiler> compiler_;
  std::vector<CallableTool> callable_;
  std::mt19937_64 random_{23};
};

// Of all formats, 2,000 outputs and more.
TEST_P(SpecialMarkersTest, ForcedCallsAreReadAsTheyWereWritten) {
  for (const bool one : {true, false}) {
    const auto grammar = Forced(one);
    ASSERT_NE(grammar, nullptr);
    for (int i = 0; i < 75; ++i) {
      const Tokens tokens = RandomTokens(*grammar);
      SCOPED_TRACE(TextOf(tokens));
      const Parsed parsed = Parse(tokens);
      EXPECT_EQ(parsed.text, "");
      ASSERT_FALSE(parsed.calls.empty());
      EXPECT_TRUE(!one || parsed.calls.size() == 1);
      for (const auto& call : parsed.calls) ASSERT_NO_FATAL_FAILURE(ExpectValid(call));
      // Without a quotation of a marker, the text says the same.
      const bool quotes = std::ranges::any_of(tokens, [&](TokenId token) {
        const std::string_view piece = tokenizer_.piece(token);
        return !tokenizer_.is_special(token) && piece.find_first_of("<]") != piece.npos;
      });
      if (quotes) continue;
      EXPECT_EQ(parsed.calls, Parse(Bytes(TextOf(tokens)), SpecialMarkers()).calls);
    }
  }
}

// A marker in ordinary tokens is refused, or belongs to a text and ends nothing.
TEST_P(SpecialMarkersTest, OnlySpecialTokensMarkForcedCalls) {
  const auto grammar = Forced(true);
  const auto mask =
      MaskAfter(*grammar, {}, tokenizer_.spec().eos, static_cast<int32_t>(tokenizer_.vocab_size()));
  const TokenId first = RandomTokens(*grammar).front();
  if (tokenizer_.is_special(first)) {
    EXPECT_TRUE(Allows(mask, first));
    EXPECT_FALSE(Allows(mask, static_cast<uint8_t>(tokenizer_.piece(first).front())));
  }
  int replaced = 0;
  for (int i = 0; i < 10; ++i) {
    const Tokens tokens = RandomTokens(*grammar);
    ASSERT_TRUE(IsOutput(*grammar, tokens));
    for (size_t at = 0; at < tokens.size(); ++at) {
      if (!tokenizer_.is_special(tokens[at])) continue;
      Tokens plain(tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(at));
      std::ranges::copy(Bytes(tokenizer_.piece(tokens[at])), std::back_inserter(plain));
      plain.insert(plain.end(), tokens.begin() + static_cast<std::ptrdiff_t>(at) + 1, tokens.end());
      EXPECT_FALSE(IsOutput(*grammar, plain)) << TextOf(plain) << " at " << at;
      ++replaced;
    }
  }
  EXPECT_GT(replaced, 5);
}

TEST_P(SpecialMarkersTest, ACallInOrdinaryTokensIsText) {
  const auto forced = Forced(true);
  const auto strict = Strict();
  const Tokens answer = WithMarkers(harmony() ? "<|channel|>final<|message|>" : "");
  for (int i = 0; i < 20; ++i) {
    const Tokens call = RandomTokens(*forced);
    // Whole, and a beginning with what no schema allows behind it.
    for (const std::string& rest : {TextOf(call), TextOf({call.begin(), call.begin() + 3}) + "#"}) {
      const std::string quotation = "You wrote " + rest + " <!>";
      Tokens tokens = answer;
      std::ranges::copy(Bytes(quotation), std::back_inserter(tokens));
      if (opening_is_text()) {  // the parser could not tell a quotation from a call
        EXPECT_FALSE(rest.size() > 40 && IsOutput(*strict, tokens)) << quotation;
        continue;
      }
      ASSERT_TRUE(IsOutput(*strict, tokens)) << quotation;
      const Parsed parsed = Parse(tokens);
      EXPECT_TRUE(parsed.calls.empty()) << quotation;
      EXPECT_EQ(parsed.text, quotation);
    }
  }
}

TEST_P(SpecialMarkersTest, ACallOfSpecialTokensMayStandBehindText) {
  const auto forced = Forced(true);
  const auto strict = Strict();
  const std::string before =
      harmony() ? "<|channel|>commentary<|message|>I look.<|end|><|start|>assistant" : "I look. ";
  const Tokens call = RandomTokens(*forced);
  Tokens tokens = WithMarkers(before);
  tokens.insert(tokens.end(), call.begin(), call.end());
  EXPECT_TRUE(IsOutput(*strict, tokens)) << TextOf(tokens);
  EXPECT_EQ(Parse(tokens).calls, Parse(call).calls);
}

// Text may have the characters of a marker, and a call that a special token begins is enforced.
TEST_P(SpecialMarkersTest, WhatASpecialTokenBeginsIsEnforced) {
  const auto strict = Strict();
  const CallSyntax& syntax = PlainSyntaxOf(GetParam());
  const std::vector<std::string>& begins =
      syntax.sections.empty() ? syntax.openings : syntax.sections;
  Tokens begin = Bytes("I look. <");
  std::ranges::copy(WithMarkers(begins.empty() ? "" : begins[0]), std::back_inserter(begin));
  if (harmony()) begin = WithMarkers("<|channel|>commentary to=functions.");
  for (int i = 0; i < 20; ++i) {
    const Tokens tokens = RandomTokens(*strict, begin);
    const Parsed parsed = Parse(tokens);
    EXPECT_FALSE(parsed.calls.empty()) << TextOf(tokens);
    for (const auto& call : parsed.calls) ASSERT_NO_FATAL_FAILURE(ExpectValid(call));
  }
}

// Else a call that the grammar does not know would be read.
TEST_P(SpecialMarkersTest, TextHasNoOtherBeginningOfACall) {
  const auto strict = Strict();
  const Tokens text = WithMarkers(harmony() ? "<|channel|>final<|message|>Hm " : "Hm ");
  std::vector<std::string> markers = PlainSyntaxOf(GetParam()).Beginnings();
  if (harmony()) markers = {"<|channel|>", "<|start|>", "<|message|>"};
  for (const std::string& marker : markers) {
    if (formats_.Signed(marker) == marker) continue;
    Tokens tokens = text;
    std::ranges::copy(WithMarkers(marker), std::back_inserter(tokens));
    tokens.push_back('#');
    EXPECT_FALSE(Begins(*strict, tokens, tokenizer_)) << marker;
    tokens = text;
    std::ranges::copy(Bytes(marker + "#"), std::back_inserter(tokens));
    EXPECT_TRUE(Begins(*strict, tokens, tokenizer_)) << marker;
  }
}

INSTANTIATE_TEST_SUITE_P(Formats,
                         SpecialMarkersTest,
                         ::testing::ValuesIn(Marked()),
                         [](const auto& format) { return std::string(NameOf(format.param)); });

// The closing marker of reasoning, and an answer behind it.
TEST(SpecialMarkers, OnlyTheSpecialTokenEndsReasoning) {
  for (int i = 1; i <= static_cast<int>(kLastReasoningFormat); ++i) {
    const auto format = static_cast<ReasoningFormat>(i);
    if (format == ReasoningFormat::kHarmony || format == ReasoningFormat::kAprielThink) continue;
    const std::string_view marker = MarkersOf(format)->end;
    SCOPED_TRACE(marker);
    const Tokenizer tokenizer = BytesAnd({}, TokensOf(format));
    const auto compiler = CompilerFor(tokenizer);
    const MarkedFormats formats = {.reasoning = format,
                                   .special = SpecialMarkers(TokensOf(format))};
    const auto grammar =
        CompileNow(*compiler,
                   GrammarSpec(AfterReasoning(
                       formats, true, ChoicePart(std::vector<std::string>{"Yes"}).value())));
    Tokens tokens = Bytes("Hm, " + std::string(marker) + "No");
    EXPECT_TRUE(Begins(*grammar, tokens, tokenizer));
    Tokens again = tokens;
    std::ranges::copy(WithSpecial(MarkersOf(format)->begin, TokensOf(format), tokenizer),
                      std::back_inserter(again));
    EXPECT_FALSE(Begins(*grammar, again, tokenizer)) << "a special token that does not end it";
    std::ranges::copy(WithSpecial(marker, TokensOf(format), tokenizer), std::back_inserter(tokens));
    EXPECT_TRUE(Begins(*grammar, tokens, tokenizer));
    tokens.push_back('N');
    EXPECT_FALSE(Begins(*grammar, tokens, tokenizer));
    tokens.back() = 'Y';
    EXPECT_TRUE(Begins(*grammar, tokens, tokenizer));
  }
}

// Text of a client is ordinary text: no rule of it takes a special token.
TEST(SpecialMarkers, OtherGrammarsHaveNoSpecialTokens) {
  const Tokenizer tokenizer = BytesAnd({}, {"<think>"});
  const auto compiler = CompilerFor(tokenizer);
  const TokenId think = *tokenizer.Find("<think>");
  const std::pair<StatusOr<GrammarPart>, const char*> cases[] = {
      {JsonSchemaPart({{"type", "string"}}), "\""},
      {JsonSchemaPart({{"const", "<think>"}}), "\""},
      {JsonSchemaPart({{"type", "string"}, {"pattern", "."}}), "\""},
      {JsonObjectPart(), "{\""},
      {RegexPart(".*[^]*"), ""},
      {ChoicePart(std::vector<std::string>{"<think>"}), ""},
      {EbnfPart("root ::= [^a]* \"<think>\""), ""}};
  for (const auto& [part, begin] : cases) {
    ASSERT_TRUE(part.ok()) << part.status();
    SCOPED_TRACE(part->dump());
    const auto grammar = CompileNow(*compiler, GrammarSpec(*part));
    const Tokens before(begin, begin + std::string_view(begin).size());
    const auto mask = MaskAfter(
        *grammar, before, tokenizer.spec().eos, static_cast<int32_t>(tokenizer.vocab_size()));
    EXPECT_TRUE(Allows(mask, '<'));
    EXPECT_FALSE(Allows(mask, think));
    EXPECT_FALSE(Allows(mask, 0xFF));
  }
}

TEST(SpecialMarkers, AClientCannotWriteTheSign) {
  const std::string sign(kGrammarSign);
  const Json named = {{"type", "object"}, {"properties", {{sign, {{"type", "null"}}}}}};
  const StatusOr<GrammarPart> parts[] = {
      JsonSchemaPart({{"const", sign}}),
      JsonSchemaPart({{"enum", {"a", sign + "<think>"}}}),
      JsonSchemaPart(named),
      JsonSchemaPart({{"type", "string"}, {"pattern", "a" + sign}}),
      RegexPart(sign + "<think>"),
      ChoicePart(std::vector<std::string>{"a", sign}),
      EbnfPart("root ::= \"" + sign + "\""),
      EbnfPart(R"(root ::= "\uFDD0")"),
      EbnfPart(R"(root ::= [\U0000fdd0])")};
  for (const auto& part : parts) {
    EXPECT_EQ(part.status().code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(Message(part.status())), testing::HasSubstr("U+FDD0"));
  }
  // An escape in a regular expression allows nothing.
  for (const char* pattern : {"\\ufdd0", "[\\ufdd0]", "[\\ufdd0-\\ufdd0]"}) {
    EXPECT_NE(CheckGrammar(GrammarSpec(RegexPart(pattern).value())), OkStatus()) << pattern;
  }
}

}  // namespace
}  // namespace baton
