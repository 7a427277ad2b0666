// The masks of this tree against those of XGrammar's own compiler and matcher, bit for bit.
#include <xgrammar/compiler.h>
#include <xgrammar/matcher.h>

#include <algorithm>
#include <fstream>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "common/chat_format/chat_format.h"
#include "common/chat_format/markers.h"
#include "common/grammar/call_grammar.h"
#include "common/grammar/grammar_spec.h"
#include "common/grammar/schema_check.h"
#include "common/grammar/xgrammar/grammar_compiler.h"
#include "common/grammar/xgrammar/json_rules.h"
#include "common/grammar/xgrammar/special_signs.h"
#include "common/grammar/xgrammar/utf8_tokens.h"
#include "common/text/utf8.h"
#include "kernels/token_mask.h"
#include "tests/support/byte_tokenizer.h"
#include "tests/unit/grammar/grammar_walk.h"

namespace baton {
namespace {

using Json = nlohmann::ordered_json;

// Texts as tokenizers join them, and parts of characters.
std::vector<std::string> RandomTexts(size_t count) {
  static constexpr const char* kParts[] = {
      "a",  "b", "ab",  "c",  "x", "y",         "0",        "1",    "12",  " ",   "\"",
      "\\", ",", ":",   "{",  "}", "[",         "]",        "-",    ".",   "e",   "tru",
      "e",  "n", "ull", "\n", "(", ")",         "=",        "\t",   "+",   "\\n", "<",
      ">",  "/", "é",   "中", "_", "tool_call", "\xe4\xb8", "\xad", "\x01"};
  std::mt19937_64 random(11);
  const std::vector<std::string_view> markers = AllTokens();
  std::vector<std::string> texts;
  while (texts.size() < count) {
    std::string text;
    const size_t parts = 2 + random() % 5;
    for (size_t i = 0; i < parts; ++i) text += kParts[random() % std::size(kParts)];
    if (std::ranges::count(markers, text) == 0) texts.push_back(std::move(text));
  }
  return texts;
}

class MaskOracleTest : public ::testing::Test {
 protected:
  MaskOracleTest()
      : tokenizer_(BytesAnd(RandomTexts(1500), AllTokens())),
        vocabulary_(static_cast<int32_t>(tokenizer_.vocab_size()) + 7),
        compiler_(MakeGrammarCompiler(tokenizer_, {.vocabulary = vocabulary_}).value()),
        texts_(static_cast<size_t>(vocabulary_)) {
    const std::vector<std::string_view> markers = AllTokens();
    for (size_t i = 0; i < tokenizer_.vocab_size(); ++i) {
      const auto token = static_cast<TokenId>(i);
      const std::string_view piece = tokenizer_.piece(token);
      if (std::ranges::count(markers, piece) > 0) {
        texts_[i] = fmt::format("{}{}", kSpecialSign, piece);
      } else if (!tokenizer_.is_special(token) && piece.find(kSpecialSign) == piece.npos) {
        texts_[i] = piece;
      }
    }
    const xgrammar::TokenizerInfo info(texts_,
                                       xgrammar::VocabType::RAW,
                                       vocabulary_,
                                       std::vector<int32_t>{tokenizer_.spec().eos[0]});
    oracle_ = std::make_unique<xgrammar::GrammarCompiler>(info, 1, false);
  }

  std::vector<uint32_t> OracleMask(xgrammar::GrammarMatcher& matcher) const {
    std::vector<uint32_t> mask(MaskWords(vocabulary_));
    int64_t shape = static_cast<int64_t>(mask.size());
    DLTensor tensor{.data = mask.data(),
                    .device = {kDLCPU, 0},
                    .ndim = 1,
                    .dtype = {kDLInt, 32, 1},
                    .shape = &shape,
                    .strides = nullptr,
                    .byte_offset = 0};
    matcher.FillNextTokenBitmask(&tensor);
    const auto rest = static_cast<uint32_t>(vocabulary_) % 32;
    if (rest != 0) mask.back() &= (uint32_t{1} << rest) - 1;
    return mask;
  }

  const std::string& TextOf(TokenId token) const { return texts_[static_cast<size_t>(token)]; }

  void TearDown() override { EXPECT_LE(doubtful_, max_doubtful_); }

  // Walks `outputs` times at random, and compares the masks at each step.
  void ExpectSameMasks(const StatusOr<GrammarPart>& part, int outputs = 4, int most = 60) {
    ASSERT_TRUE(part.ok()) << part.status();
    const std::string spec = GrammarSpec(*part);
    SCOPED_TRACE(spec.substr(0, 300));
    const auto grammar = CompileNow(*compiler_, spec);
    ASSERT_NE(grammar, nullptr);
    auto parsed = std::get<xgrammar::Grammar>(xgrammar::Grammar::FromStructuralTag(spec));
    NarrowJsonRules(Json::parse(spec), parsed);
    ReadSigns(parsed);
    const auto expected = oracle_->CompileGrammar(parsed);
    const TokenId end = tokenizer_.spec().eos[0];
    for (int output = 0; output < outputs; ++output) {
      const auto matcher = grammar->NewMatcher(tokenizer_.spec().eos);
      xgrammar::GrammarMatcher oracle(expected);
      std::string text;
      for (int step = 0; step < most; ++step) {
        std::vector<uint32_t> mask(MaskWords(vocabulary_));
        matcher->FillMask(mask);
        const std::vector<uint32_t> right = OracleMask(oracle);
        std::vector<TokenId> allowed;
        const Utf8State utf8 = Utf8After(Utf8State::kWhole, text);
        for (TokenId token = 0; token < vocabulary_; ++token) {
          // XGrammar's automata allow surrogates, and free text that stops within a character.
          const bool valid = token == end ? utf8 == Utf8State::kWhole
                                          : Utf8After(utf8, TextOf(token)) != Utf8State::kInvalid;
          bool expected_bit = Allows(right, token) && valid;
          if (Allows(mask, token) != expected_bit) {
            // XGrammar's masks of strings with bounds over 128 allow what its parser refuses.
            expected_bit = valid && oracle.AcceptToken(token);
            if (expected_bit) oracle.Rollback(1);
            ++doubtful_;
          }
          ASSERT_EQ(Allows(mask, token), expected_bit)
              << "token " << token << " '" << TextOf(token) << "' after " << text;
          if (Allows(mask, token)) allowed.push_back(token);
        }
        ++masks_;
        if (allowed.empty()) break;
        const TokenId token = allowed[random_() % allowed.size()];
        ASSERT_TRUE(matcher->Accept(token));
        if (token == end) break;
        ASSERT_TRUE(oracle.AcceptToken(token));
        text += TextOf(token);
      }
    }
  }

  const Tokenizer tokenizer_;
  const int32_t vocabulary_;
  const std::unique_ptr<GrammarCompiler> compiler_;
  // Of each token, as grammars have them: with the sign before a marker, which is a special token.
  std::vector<std::string> texts_;
  std::unique_ptr<xgrammar::GrammarCompiler> oracle_;
  std::mt19937_64 random_{17};
  int masks_ = 0;
  int doubtful_ = 0;  // bits that differ from XGrammar's mask, about which its parser decided
  int max_doubtful_ = 0;
};

TEST_F(MaskOracleTest, Schemas) {
  std::ifstream file(std::string(BATON_TEST_DATA) + "/grammar/schemas.json");
  for (const Json& schema : Json::parse(file)) {
    ASSERT_NO_FATAL_FAILURE(ExpectSameMasks(JsonSchemaPart(schema)));
  }
  ASSERT_NO_FATAL_FAILURE(ExpectSameMasks(JsonObjectPart(), 10));
  EXPECT_GT(masks_, 1000);
}

TEST_F(MaskOracleTest, StringsWithBounds) {
  max_doubtful_ = 12'000;  // 11,484 of the bits of 704 masks
  for (const auto& [least, most] :
       std::vector<std::pair<int, int>>{{0, 1}, {3, 9}, {2, 40}, {0, 150}}) {
    ASSERT_NO_FATAL_FAILURE(ExpectSameMasks(
        JsonSchemaPart({{"type", "string"}, {"minLength", least}, {"maxLength", most}}), 6));
  }
  ASSERT_NO_FATAL_FAILURE(
      ExpectSameMasks(JsonSchemaPart({{"type", "array"},
                                      {"items", {{"type", "string"}, {"maxLength", 3}}},
                                      {"minItems", 130},
                                      {"maxItems", 140}}),
                      2,
                      150));
}

TEST_F(MaskOracleTest, RegularExpressions) {
  for (const char* pattern : {"(ab|a|b)*x",
                              "[^\"]*",
                              "(a*)*b",
                              "(a+)+c",
                              "(x+x+)+y",
                              "\\d{2,5}(\\.\\d+)?",
                              "(a|b|ab)*abb",
                              ".{0,20}",
                              "[a-c]{130,140}",
                              "((a?){3}b){2,}",
                              "[A-Za-z0-9]{1,6}-?[A-Za-z0-9]{2,9}",
                              "([A-Za-z0-9](-?[A-Za-z0-9]){0,7}\\.){1,3}",
                              "[A-Za-z0-9]{0,5}[a-z_]{3}",
                              "(é|中|a)+",
                              "[^a]{2}",
                              "(a{0,200}b){0,300}",
                              "(\\{\"a\": (true|null)\\}, )*"}) {
    ASSERT_NO_FATAL_FAILURE(ExpectSameMasks(RegexPart(pattern), 6));
  }
}

TEST_F(MaskOracleTest, Grammars) {
  for (const char* text :
       {"root ::= root \"a\" | \"a\"",
        "root ::= expr\nexpr ::= expr \"+\" term | term\nterm ::= [0-9]+ | \"(\" expr \")\"",
        "root ::= a a a\na ::= b b b\nb ::= c c c\nc ::= \"x\" | \"\"",
        "root ::= (root | \"a\")*",
        "root ::= root root | \"a\" | \"b\"",
        "root ::= \"{\" root \"}\" | \"[\" root \"]\" | \"\"",
        "root ::= a | b\na ::= \"a\" a \"b\" | \"\"\nb ::= \"a\" b \"bb\" | \"\"",
        "root ::= x{3,200} y\nx ::= \"a\" | y\ny ::= \"b\" | \"ab\"",
        "root ::= x{150,300}\nx ::= \"a\"? \"b\"?",
        // A rule that is empty because the rules that it consists of may be.
        "root ::= r{3,100} \"x\"\nr ::= s s\ns ::= \"(\" s \")\" | \"\"",
        "root ::= \"a\" r \"b\" r \"x\"\nr ::= s t\ns ::= \"(\" s \")\" | \"\"\nt ::= \"[\" r "
        "\"]\" | \"\"",
        "root ::= item (\", \" item)*\nitem ::= \"\\\"\" [^\"]* \"\\\"\" | \"[\" root \"]\""}) {
    ASSERT_NO_FATAL_FAILURE(ExpectSameMasks(EbnfPart(text), 8));
  }
  // A token has several repetitions; the walk reaches their greatest number.
  ASSERT_NO_FATAL_FAILURE(
      ExpectSameMasks(EbnfPart("root ::= x{130,133}\nx ::= [a-z0-9_] | \"{\" \"}\""), 3, 150));
}

TEST_F(MaskOracleTest, Choices) {
  std::vector<std::string> choices = RandomTexts(300);
  std::erase_if(choices, [](const std::string& one) { return !IsValidUtf8(one); });
  ASSERT_NO_FATAL_FAILURE(ExpectSameMasks(ChoicePart(choices), 20));
}

TEST_F(MaskOracleTest, CallsOfTools) {
  const Json schema = {{"type", "object"},
                       {"properties", {{"a", {{"type", "string"}}}, {"n", {{"type", "integer"}}}}},
                       {"required", {"a"}}};
  const Json checked = CheckedSchema(schema, GrammarLimits()).value();
  const std::vector<CallableTool> tools = {{"x", checked}, {"ab", checked}};
  for (const SpecialMarkers& special : {SpecialMarkers(), SpecialMarkers(AllTokens())}) {
    for (int format = 0; format <= static_cast<int>(kLastToolCallFormat); ++format) {
      const MarkedFormats formats = {.calls = static_cast<ToolCallFormat>(format),
                                     .special = special};
      if (const auto part = CallsPart(formats, tools, false); part.ok()) {
        ASSERT_NO_FATAL_FAILURE(ExpectSameMasks(part, 3));
      }
      if (const auto part = TextWithCallsPart(formats, tools, false); part.ok()) {
        ASSERT_NO_FATAL_FAILURE(ExpectSameMasks(part, 3));
      }
    }
    for (int format = 0; format <= static_cast<int>(kLastReasoningFormat); ++format) {
      const MarkedFormats formats = {.reasoning = static_cast<ReasoningFormat>(format),
                                     .special = special};
      ASSERT_NO_FATAL_FAILURE(ExpectSameMasks(AfterReasoning(formats, true, JsonObjectPart()), 2));
    }
  }
  EXPECT_GT(masks_, 1000);
}

// The matchers of a grammar share the masks of its states.
TEST_F(MaskOracleTest, ManyThreadsMayUseOneGrammar) {
  const auto part = JsonSchemaPart(
      {{"type", "array"}, {"items", {{"type", "string"}, {"maxLength", 60}}}, {"minItems", 3}});
  const auto grammar = CompileNow(*compiler_, GrammarSpec(*part));
  const auto other = MakeGrammarCompiler(tokenizer_, {.vocabulary = vocabulary_}).value();
  const auto alone = CompileNow(*other, GrammarSpec(*part));
  std::vector<std::jthread> threads;
  for (uint64_t seed = 0; seed < 4; ++seed) {
    threads.emplace_back([&, seed] {
      std::mt19937_64 random(seed);
      EXPECT_TRUE(RandomOutput(*grammar, tokenizer_, random).has_value());
    });
  }
  threads.clear();
  std::mt19937_64 one(5);
  std::mt19937_64 same(5);
  EXPECT_EQ(RandomOutput(*grammar, tokenizer_, one), RandomOutput(*alone, tokenizer_, same));
}

}  // namespace
}  // namespace baton
