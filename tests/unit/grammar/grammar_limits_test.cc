#include <ctime>
#include <string>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "common/grammar/grammar_spec.h"
#include "common/grammar/xgrammar/grammar_compiler.h"
#include "tests/support/byte_tokenizer.h"
#include "tests/unit/grammar/grammar_walk.h"

// Grammars that would exhaust a parser, a compiler or memory.
namespace baton {
namespace {

using Json = nlohmann::ordered_json;

// An expansion that grows exponentially takes minutes. Sanitizers slow XGrammar down many times.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr double kMaxSeconds = 60;
constexpr int kEnumeratedValues = 2'000;
#else
constexpr double kMaxSeconds = 10;
constexpr int kEnumeratedValues = 10'000;
#endif

// Each of these is refused, or compiles and gives its first mask within kMaxSeconds of processor
// time.
TEST(GrammarLimits, HardGrammarsEndInTime) {
  std::vector<StatusOr<GrammarPart>> parts;
  for (const char* pattern : {"(a*)*b",
                              "(a|a)*c",
                              "(a+)+$",
                              "(.*)*",
                              "(x+x+)+y",
                              "((a?){30}){30}",
                              "(a|b|ab)*abb",
                              ".{0,4000}",
                              "\\w{1,60000}",
                              "(\\p{L}+ )*"}) {
    parts.push_back(RegexPart(pattern));
  }
  parts.push_back(EbnfPart("root ::= root \"a\" | \"a\""));
  parts.push_back(EbnfPart("root ::= a a a\na ::= b b b\nb ::= c c c\nc ::= \"x\" | \"\""));
  parts.push_back(EbnfPart("root ::= (root | \"a\")*"));
  parts.push_back(EbnfPart("root ::= other"));
  std::string chain = "root ::= r0\n";
  for (int i = 0; i < 2000; ++i) chain += fmt::format("r{} ::= r{} | \"a\"\n", i, i + 1);
  parts.push_back(EbnfPart(chain + "r2000 ::= \"b\""));
  std::string doubling = "root ::= d0\n";
  for (int i = 0; i < 40; ++i) doubling += fmt::format("d{} ::= d{}{{9}}\n", i, i + 1);
  parts.push_back(EbnfPart(doubling + "d40 ::= \"b\""));
  const auto schema = [&](const Json& one) { parts.push_back(JsonSchemaPart(one)); };
  Json names = Json::array();
  for (int i = 0; i < kEnumeratedValues; ++i) names.push_back(fmt::format("value {}", i));
  schema({{"enum", names}});
  Json wide = {{"type", "object"}, {"properties", Json::object()}};
  for (int i = 0; i < 500; ++i) wide["properties"][fmt::format("p{}", i)] = {{"type", "string"}};
  schema(wide);
  schema({{"type", "object"}, {"properties", {{"a", {{"$ref", "#"}}}, {"b", {{"$ref", "#"}}}}}});
  schema({{"type", "array"}, {"minItems", 60'000}, {"items", {{"type", "string"}}}});
  schema({{"type", "string"}, {"minLength", 60'000}, {"maxLength", 60'000}});
  Json deep = {{"type", "null"}};
  for (int i = 0; i < 25; ++i) deep = {{"type", "array"}, {"items", deep}, {"maxItems", 50}};
  schema(deep);

  const Tokenizer tokenizer = BytesAnd({"aa", "ab", "xx", "\", \""});
  const auto compiler =
      MakeGrammarCompiler(tokenizer, {.vocabulary = static_cast<int32_t>(tokenizer.vocab_size())});
  ASSERT_TRUE(compiler.ok());
  int compiled = 0;
  for (const StatusOr<GrammarPart>& part : parts) {
    if (!part.ok()) continue;
    const std::string spec = GrammarSpec(*part);
    SCOPED_TRACE(spec.substr(0, 200));
    const std::clock_t begin = std::clock();  // processor time: other programs do not count
    if (CheckGrammar(spec).ok()) {
      const auto grammar = TryCompile(**compiler, spec);
      if (grammar.ok()) {
        ++compiled;
        MaskAfter(
            **grammar, {}, tokenizer.spec().eos, static_cast<int32_t>(tokenizer.vocab_size()));
      }
    }
    EXPECT_LT(static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC, kMaxSeconds);
  }
  EXPECT_GT(compiled, 12);
}

}  // namespace
}  // namespace baton
