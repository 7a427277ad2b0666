// What the grammars of schemas allow, where XGrammar by itself would allow more; and its warnings.
#include <string>
#include <string_view>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "common/grammar/grammar_spec.h"
#include "common/grammar/xgrammar/library_calls.h"
#include "tests/support/byte_tokenizer.h"
#include "tests/unit/grammar/grammar_walk.h"

namespace xgrammar {

// What the library calls to write a line to its log (XGRAMMAR_LOG_CUSTOMIZE).
void LogMessageImpl(const std::string& file, int lineno, int level, const std::string& message);

}  // namespace xgrammar

namespace baton {
namespace {

using Json = nlohmann::ordered_json;
using ::testing::HasSubstr;

class SchemaOutputs : public ::testing::Test {
 protected:
  // Whether an output that matches `schema` may begin with `text`.
  bool MayBegin(const char* schema, std::string_view text) {
    const auto part = JsonSchemaPart(Json::parse(schema));
    EXPECT_TRUE(part.ok()) << part.status();
    const auto grammar = CompileNow(*compiler_, GrammarSpec(*part));
    const auto matcher = grammar->NewMatcher(tokenizer_.spec().eos);
    for (const char c : text) {
      if (!matcher->Accept(static_cast<uint8_t>(c))) return false;
    }
    return true;
  }

  const Tokenizer tokenizer_ = BytesAnd({});
  const std::unique_ptr<GrammarCompiler> compiler_ = CompilerFor(tokenizer_);
};

TEST_F(SchemaOutputs, StringsWithBoundsAreJson) {
  const char* schema = R"({"type": "string", "minLength": 1, "maxLength": 3})";
  EXPECT_TRUE(MayBegin(schema, "\"ab\""));
  EXPECT_TRUE(MayBegin(schema, "\"abc\""));
  EXPECT_FALSE(MayBegin(schema, "\"\""));
  EXPECT_FALSE(MayBegin(schema, "\"abcd"));
  for (const char control : {'\x01', '\n', '\t', '\x1f'}) {
    EXPECT_FALSE(MayBegin(schema, std::string("\"a") + control)) << static_cast<int>(control);
  }
}

TEST_F(SchemaOutputs, Ipv4AddressesHaveNoLeadingZeros) {
  const char* schema = R"({"type": "string", "format": "ipv4"})";
  EXPECT_TRUE(MayBegin(schema, "\"10.0.255.1\""));
  EXPECT_FALSE(MayBegin(schema, "\"01"));
  EXPECT_FALSE(MayBegin(schema, "\"10.00"));
  EXPECT_FALSE(MayBegin(schema, "\"256"));
}

TEST(LibraryCalls, AWarningIsAnError) {
  const auto warn = [](int level) {
    return CallXGrammar([level] { xgrammar::LogMessageImpl("a.cc", 1, level, "not enforced"); });
  };
  EXPECT_TRUE(warn(1).ok());
  EXPECT_EQ(warn(2).code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(Message(warn(2))), HasSubstr("not enforced"));
  EXPECT_TRUE(CallXGrammar([] {}).ok()) << "a warning of an earlier call";
}

}  // namespace
}  // namespace baton
