#include "common/grammar/conversion_work.h"

#include <grammar_impl.h>
#include <xgrammar/grammar.h>

#include <cstdlib>
#include <ctime>
#include <fstream>
#include <functional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "common/base/json.h"
#include "common/grammar/grammar_spec.h"
#include "common/grammar/schema_check.h"
#include "common/grammar/xgrammar/grammar_compiler.h"
#include "tests/support/byte_tokenizer.h"
#include "tests/unit/grammar/grammar_walk.h"

namespace baton {
namespace {

using Json = nlohmann::ordered_json;
using ::testing::HasSubstr;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

// Random schemas of all keywords that the check accepts.
class RandomSchemas final {
 public:
  explicit RandomSchemas(uint64_t seed) : random_(seed) {}

  Json Next() {
    Json schema = Schema(4);
    if (!schema.is_object()) return schema;
    for (const char* name : {"a", "b"}) schema["$defs"][name] = Schema(2);
    return schema;
  }

 private:
  size_t Below(size_t limit) { return random_() % limit; }
  bool Sometimes() { return Below(3) == 0; }
  double Number() {
    const double number = std::pow(10.0, static_cast<double>(Below(24)) - 4) * Below(1000);
    return Sometimes() ? -number : number;
  }

  Json Schema(int depth) {
    switch (Below(depth > 0 ? 12 : 6)) {
      case 0:
        return Text();
      case 1:
        return Bounded();
      case 2:
        return {{"const", Value()}};
      case 3:
        return {{"enum", {Value(), Value(), Value()}}};
      case 4:
        return {{"type", Below(2) == 0 ? "null" : "number"}};
      case 5:
        return Sometimes() ? Json(true)
                           : Json({{"$ref", Below(2) == 0 ? "#/$defs/a" : "#/$defs/b"}});
      case 6:
        return {{"anyOf", {Schema(depth - 1), Schema(depth - 1)}}};
      case 7:
        return {{"allOf", {Schema(depth - 1)}}};
      case 8:
        return Several(depth);
      case 9:
        return Array(depth);
      default:
        return Object(depth);
    }
  }

  Json Value() {
    static const Json values[] = {1, "text", nullptr, {{"a", {1, 2}}}, 0.5, std::string(80, 'x')};
    return values[Below(std::size(values))];
  }

  Json Text() {
    static constexpr const char* kFormats[] = {"date",
                                               "time",
                                               "date-time",
                                               "duration",
                                               "email",
                                               "hostname",
                                               "ipv4",
                                               "ipv6",
                                               "uri",
                                               "uri-reference",
                                               "uri-template",
                                               "uuid",
                                               "json-pointer",
                                               "relative-json-pointer"};
    static constexpr const char* kPatterns[] = {"^[a-z]{3,9}$",
                                                "a|b|c",
                                                "é+",
                                                "^(é|b){2,40}x?$",
                                                "\\d+(\\.\\d{2})?",
                                                "^((a?){3}b){2,}$",
                                                "[^a-f]é*(x|yz)+",
                                                "(中|[a-c]{2}){1,9}",
                                                "^.*$",
                                                "a?b?c?d?é?"};
    if (Sometimes()) return {{"type", "string"}, {"format", kFormats[Below(std::size(kFormats))]}};
    if (Sometimes())
      return {{"type", "string"}, {"pattern", kPatterns[Below(std::size(kPatterns))]}};
    const size_t least = Below(9);
    return {{"type", "string"}, {"minLength", least}, {"maxLength", least + Below(300)}};
  }

  Json Bounded() {
    if (Sometimes()) return {{"type", "integer"}, {"multipleOf", 1 + Below(50)}};
    const bool integer = Below(2) == 0;
    const auto number = [&](double one) {
      return integer ? Json(static_cast<int64_t>(std::clamp(one, -9e18, 9e18))) : Json(one);
    };
    double low = Number();
    double high = Number();
    if (low > high) std::swap(low, high);
    Json schema = {{"type", integer ? "integer" : "number"}};
    if (Below(4) != 0) schema[Sometimes() ? "exclusiveMinimum" : "minimum"] = number(low);
    if (Below(4) != 0) schema[Sometimes() ? "exclusiveMaximum" : "maximum"] = number(high);
    return schema;
  }

  Json Several(int depth) {
    Json schema = Object(depth);
    schema["type"] = {"object", "array", "string", "integer", "null", "boolean"};
    if (Sometimes()) schema["items"] = Schema(depth - 1);
    if (Sometimes()) schema["minimum"] = static_cast<int64_t>(Below(1000));
    return schema;
  }

  Json Array(int depth) {
    Json schema = {{"type", "array"}, {"items", Schema(depth - 1)}};
    const size_t least = Below(4);
    if (Sometimes()) schema["minItems"] = least;
    if (Sometimes()) schema["maxItems"] = least + 2 + Below(200);
    if (Sometimes()) schema["prefixItems"] = {Object(depth - 1), Object(depth - 1)};
    return schema;
  }

  Json Object(int depth) {
    Json schema = {{"type", "object"}};
    const size_t count = Below(9);
    for (size_t i = 0; i < count; ++i) {
      const std::string name = fmt::format("p{}", i);
      schema["properties"][name] = depth > 0 ? Schema(depth - 1) : Json({{"type", "null"}});
      if (Sometimes()) schema["required"].push_back(name);
    }
    if (count == 0) schema["additionalProperties"] = depth > 0 ? Schema(depth - 1) : Json(true);
    if (Sometimes()) schema["minProperties"] = Below(3);
    if (Sometimes()) schema["maxProperties"] = 3 + Below(9);
    return schema;
  }

  std::mt19937_64 random_;
};

// The expressions of the grammar of `spec`; nothing when XGrammar refuses it.
std::optional<int64_t> Converted(const std::string& spec) {
  std::optional<int64_t> expressions;
  try {
    auto grammar = xgrammar::Grammar::FromStructuralTag(spec);
    if (std::holds_alternative<xgrammar::Grammar>(grammar)) {
      expressions = std::get<xgrammar::Grammar>(grammar)->NumGrammarExprs();
    }
  } catch (const std::exception&) {
    return std::nullopt;
  }
  return expressions;
}

TEST(ConversionWork, IsAtLeastThatOfRandomSchemas) {
  RandomSchemas schemas(31);
  int converted = 0;
  int64_t estimates = 0;
  int64_t real = 0;
  for (int i = 0; i < (kSanitized ? 200 : 800); ++i) {
    const Json schema = schemas.Next();
    const auto checked = CheckedSchema(schema, GrammarLimits());
    if (!checked.ok()) continue;
    std::vector<std::string_view> excluded;
    const std::string tag = "<" + std::string(i % 200, 'x') + ">";
    if (i % 4 == 0) excluded = {"</", "<parameter=", tag};
    const std::string spec = GrammarSpec(JsonSchemaOf(*checked, excluded));
    const std::optional<int64_t> expressions = Converted(spec);
    if (!expressions.has_value()) continue;
    ++converted;
    const int64_t estimate = ConversionWorkOf(Json::parse(spec)).expressions;
    ASSERT_GE(estimate, *expressions) << spec;
    estimates += estimate;
    real += *expressions;
  }
  EXPECT_GT(converted, kSanitized ? 50 : 200);
  EXPECT_LT(estimates, 5 * real) << "an estimate that says little";
}

TEST(ConversionWork, IsAtLeastThatOfTexts) {
  std::vector<StatusOr<GrammarPart>> parts;
  for (const char* piece :
       {"a?", "(a*)*", "(x+x+)+y", "(a|b|c|d)", "[a-c]{2,9}", "(a{2}){2}", "é|"}) {
    std::string pattern;
    while (pattern.size() < 3000) pattern += piece;
    parts.push_back(RegexPart(pattern + "z"));
  }
  for (const char* piece : {"\"a\"* ", "(\"a\" \"b\")* ", "\"a\"? ", "| \"b\" ", "a ", "[a-c]+ "}) {
    std::string grammar = "root ::= \"a\" ";
    while (grammar.size() < 3000) grammar += piece;
    parts.push_back(EbnfPart(grammar + "\na ::= \"b\" | \"\""));
  }
  std::vector<std::string> choices;
  for (int i = 0; i < 300; ++i) choices.push_back(fmt::format("choice {}", i));
  parts.push_back(ChoicePart(choices));
  for (const StatusOr<GrammarPart>& part : parts) {
    ASSERT_TRUE(part.ok()) << part.status();
    const std::string spec = GrammarSpec(*part);
    EXPECT_GE(ConversionWorkOf(Json::parse(spec)).expressions, Converted(spec).value()) << spec;
  }
}

TEST(ConversionWork, SchemasOfTheTestsAreSmall) {
  std::ifstream file(std::string(BATON_TEST_DATA) + "/grammar/schemas.json");
  for (const Json& schema : Json::parse(file)) {
    const auto part = JsonSchemaPart(schema);
    ASSERT_TRUE(part.ok()) << part.status();
    EXPECT_LT(ConversionWorkOf(*part).expressions, 40'000) << schema;
  }
}

// The largest memory of this process since the last call, in bytes; 0 when that is not known.
int64_t PeakBytes() {
  std::ifstream status("/proc/self/status");
  std::string line;
  int64_t peak = 0;
  while (std::getline(status, line)) {
    if (line.starts_with("VmHWM:")) peak = std::stoll(line.substr(6)) * 1024;
  }
  std::ofstream("/proc/self/clear_refs") << 5;
  return peak;
}

std::string Joined(int count, const std::function<std::string(int)>& text) {
  std::string out;
  for (int i = 0; i < count; ++i) out += (i == 0 ? "" : ",") + text(i);
  return out;
}

std::string ObjectOf(int count, const std::string& schema, const std::string& more = "") {
  const auto property = [&](int i) { return fmt::format(R"("p{}":{})", i, schema); };
  return fmt::format(R"({{"type":"object","properties":{{{}}}{}}})", Joined(count, property), more);
}

std::string ItemsOf(int count, const std::function<std::string(int)>& schema) {
  return fmt::format(R"({{"type":"array","items":false,"prefixItems":[{}]}})",
                     Joined(count, schema));
}

// `inner` within 27 objects of the type `type`.
std::string NestedIn(const std::string& type, std::string inner) {
  for (int i = 0; i < 27; ++i) {
    inner = fmt::format(R"({{"type":{},"properties":{{"a":{}}}}})", type, inner);
  }
  return inner;
}

constexpr const char* kAllTypes =
    R"(["object","array","string","number","integer","boolean","null"])";

std::string LargeEnumeration() {
  const auto value = [](int i) { return fmt::format(R"("value {}")", i); };
  return fmt::format(R"({{"enum":[{}]}})", Joined(16'000, value));
}

// Definitions that lead from each to the next.
std::string ChainOf(int count) {
  const auto link = [](int i) {
    return fmt::format(R"("d{}":{{"anyOf":[{{"$ref":"#/$defs/d{}"}}]}})", i, i + 1);
  };
  return fmt::format(
      R"({{"$ref":"#/$defs/d0","$defs":{{{},"d{}":true}}}})", Joined(count, link), count);
}

// Schemas of at most 256 KiB that would take a conversion seconds, minutes or gigabytes.
std::vector<std::string> HostileSchemas() {
  std::vector<std::string> schemas;
  for (const int count : {800, 2'000, 6'000}) {
    const std::string counted =
        ObjectOf(count, R"({"type":"null"})", fmt::format(R"(,"minProperties":{})", count / 2));
    schemas.push_back(R"({"$ref":"#/default","default":)" + counted + "}");
    schemas.push_back(R"({"$ref":"#/$defs/a","$defs":{"a":)" + counted + "}}");
  }
  schemas.push_back(NestedIn(R"("object")", LargeEnumeration()));
  schemas.push_back(NestedIn(kAllTypes, LargeEnumeration()));
  schemas.push_back(NestedIn(R"(["object","object"])", "true"));
  const std::string name(80'000, 'a');
  schemas.push_back(fmt::format(
      R"({{"$ref":"#/$defs/{}","$defs":{{"{}":{}}}}})", name, name, ObjectOf(5'000, "true")));
  schemas.push_back(ObjectOf(15'000, "true"));
  schemas.push_back(ItemsOf(3'500, [](int i) {
    return fmt::format(R"({{"type":"integer","minimum":{},"maximum":987654321098765}})",
                       i - 123456789012345);
  }));
  schemas.push_back(ItemsOf(3'500, [](int i) {
    return fmt::format(R"({{"type":"number","minimum":-9{}.25,"maximum":987654321.09}})", i);
  }));
  for (const char* format : {"ipv6", "uri", "email"}) {
    schemas.push_back(ItemsOf(4'500, [&](int i) {
      return fmt::format(R"({{"type":"string","format":"{}","title":"{}"}})", format, i);
    }));
  }
  schemas.push_back(ItemsOf(3'000, [](int i) {
    return fmt::format(
        R"({{"type":"integer","multipleOf":1,"minimum":{},"maximum":{}}})", i, i + 9'000);
  }));
  const auto number = [](int i) { return std::to_string(i); };
  const auto negative = [](int i) { return std::to_string(-1 - i); };
  schemas.push_back(fmt::format(R"({{"oneOf":[{{"enum":[{}]}},{{"enum":[{}]}}]}})",
                                Joined(9'000, number),
                                Joined(9'000, negative)));
  const std::string often = Joined(40'000, [](int) { return std::string(R"("p0")"); });
  schemas.push_back(fmt::format(R"({{"oneOf":[{},{},{}]}})",
                                ObjectOf(1, R"({"const":1})", R"(,"required":[)" + often + "]"),
                                ObjectOf(1, R"({"const":2})", R"(,"required":["p0"])"),
                                ObjectOf(1, R"({"const":3})", R"(,"required":["p0"])")));
  schemas.push_back(ChainOf(5'500));
  schemas.push_back(fmt::format(
      R"({{"$ref":"#/$defs/d0","$defs":{{{},"d4200":true}}}})", Joined(4'200, [](int i) {
        return fmt::format(
            R"("d{}":{{"type":"array","items":{{"$ref":"#/$defs/d{}"}}}})", i, i + 1);
      })));
  return schemas;
}

// Converts a schema as a router and then a worker do it. It is refused or converted soon and in
// little memory: the bounds are generous, and without the checks hostile schemas take minutes or
// gigabytes. Returns whether it was refused.
bool EndsSoonInLittleMemory(GrammarCompiler& compiler, const std::string& text) {
  SCOPED_TRACE(text.substr(0, 200));
  (void)PeakBytes();
  const int64_t before = PeakBytes();
  const std::clock_t begin = std::clock();  // of all threads; other programs do not count
  const auto part = JsonSchemaPart(ParseOrderedJson("the schema", text).value());
  Status status = part.status();
  if (part.ok()) {
    status = CheckGrammar(GrammarSpec(*part));
    if (status.ok()) status = TryCompile(compiler, GrammarSpec(*part)).status();
  }
  const double seconds = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
  const bool is_slow = kSanitized || std::getenv("QEMU_LD_PREFIX") != nullptr;
  EXPECT_LT(seconds, is_slow ? 30 : 2);
  EXPECT_LT(PeakBytes() - before, int64_t{kSanitized ? 2048 : 100} << 20);
  return !status.ok();
}

TEST(ConversionWork, HostileSchemasEndSoonInLittleMemory) {
  const Tokenizer tokenizer = BytesAnd({"aa", "ab"});
  const auto compiler = CompilerFor(tokenizer);
  int refused = 0;
  for (const std::string& text : HostileSchemas()) {
    ASSERT_LT(text.size(), size_t{256} << 10);
    refused += EndsSoonInLittleMemory(*compiler, text) ? 1 : 0;
  }
  EXPECT_GT(refused, 15);
}

// A schema in which a few things are as many as its size allows.
std::string RandomHostileSchema(std::mt19937_64& random) {
  const auto below = [&](uint64_t limit) { return static_cast<int>(random() % limit); };
  const auto many = [&] { return 1 << below(13); };
  std::vector<std::string> schemas = {"true", R"({"type":"null"})", R"({"$ref":"#/$defs/d0"})"};
  const auto any = [&] { return schemas[random() % schemas.size()]; };
  const auto add = [&](std::string schema) {
    if (schema.size() < size_t{80} << 10) schemas.push_back(std::move(schema));
  };
  const auto list = [&](int count) { return Joined(count, [&](int) { return any(); }); };
  for (int i = 2 + below(12); i > 0; --i) {
    const int count = many();
    const auto value = [&](int j) { return fmt::format("{}", j * count); };
    switch (below(12)) {
      case 0:
        add(ObjectOf(count, any()));
        break;
      case 1:
        add(ObjectOf(count, any(), fmt::format(R"(,"minProperties":{})", below(count))));
        break;
      case 2:
        add(fmt::format(R"({{"enum":[{}]}})", Joined(count, value)));
        break;
      case 3:
        add(fmt::format(R"({{"anyOf":[{}]}})", list(count)));
        break;
      case 4:
        add(fmt::format(R"({{"oneOf":[{}]}})", list(1 + below(20))));
        break;
      case 5:
        add(fmt::format(R"({{"type":{},"items":{}}})", kAllTypes, any()));
        break;
      case 6:
        add(fmt::format(R"({{"type":"array","items":{},"minItems":{},"maxItems":{}}})",
                        any(),
                        count / 2,
                        2 * count));
        break;
      case 7:
        add(ItemsOf(count, [&](int) { return any(); }));
        break;
      case 8:
        add(fmt::format(R"({{"type":"string","pattern":"^({}){{0,{}}}$"}})",
                        std::string(static_cast<size_t>(1 + below(40)), 'a') + "?",
                        count));
        break;
      case 9:
        add(fmt::format(R"({{"type":"integer","multipleOf":{},"minimum":{}}})", count, below(999)));
        break;
      case 10:
        add(fmt::format(R"({{"type":"object","additionalProperties":{}}})", any()));
        break;
      default:
        add(fmt::format(R"({{"type":"string","minLength":{},"maxLength":{}}})", count, 3 * count));
    }
  }
  std::string definitions = fmt::format(R"("d0":{{"type":"array","items":{}}})", "true");
  for (int i = 1, links = many(); i < links; ++i) {
    definitions += fmt::format(R"(,"d{}":{{"anyOf":[{{"$ref":"#/$defs/d{}"}},true]}})", i, i - 1);
  }
  return fmt::format(R"({{"anyOf":[{},{}],"$defs":{{{}}}}})", schemas.back(), any(), definitions);
}

TEST(ConversionWork, DISABLED_RandomHostileSchemasEndSoonInLittleMemory) {
  const Tokenizer tokenizer = BytesAnd({"aa", "ab"});
  const auto compiler = CompilerFor(tokenizer);
  const uint64_t first = std::random_device()();
  int refused = 0;
  constexpr int kSchemas = 1'500;
  for (int i = 0; i < kSchemas; ++i) {
    const uint64_t seed = first + static_cast<uint64_t>(i);
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937_64 random(seed);
    refused += EndsSoonInLittleMemory(*compiler, RandomHostileSchema(random)) ? 1 : 0;
    ASSERT_FALSE(HasFailure());
  }
  EXPECT_GT(refused, kSchemas / 20);
  EXPECT_LT(refused, kSchemas * 19 / 20);
}

TEST(ConversionWork, EachKindOfWorkIsBounded) {
  const auto refusal = [](const std::string& schema) {
    const Json spec =
        Json::parse(GrammarSpec(JsonSchemaOf(ParseOrderedJson("it", schema).value())));
    return std::string(Message(CheckConversionWork(spec)));
  };
  const auto values = [](int from) {
    const std::string list = Joined(2'500, [&](int i) { return std::to_string(from + i); });
    return fmt::format(R"({{"enum":[{}]}})", list);
  };
  const auto options = [&](int count) {
    return fmt::format(R"({{"oneOf":[{}]}})",
                       Joined(count, [&](int i) { return values(5'000 * i); }));
  };
  EXPECT_EQ(refusal(ObjectOf(3'000, R"({"type":"null"})")), "");
  EXPECT_THAT(refusal(ObjectOf(4'000, R"({"type":"null"})")), HasSubstr("expressions; at most"));
  EXPECT_EQ(refusal(NestedIn(R"("object")", values(0))), "");
  EXPECT_THAT(refusal(NestedIn(kAllTypes, values(0))), HasSubstr("counted for each value"));
  EXPECT_EQ(refusal(options(1)), "");
  EXPECT_THAT(refusal(options(2)), HasSubstr("pairs of values to compare"));
  EXPECT_EQ(refusal(ChainOf(900)), "");
  EXPECT_THAT(refusal(ChainOf(1'000)), HasSubstr("levels; at most"));
}

// A router or a worker bounds the work of what it is told to convert, whoever made the text.
TEST(ConversionWork, TheConversionIsBoundedWhereItHappens) {
  for (const char* type : {R"("object")", kAllTypes}) {
    const std::string schema = NestedIn(type, LargeEnumeration());
    const std::string spec = GrammarSpec(JsonSchemaOf(ParseOrderedJson("it", schema).value()));
    EXPECT_THAT(std::string(Message(CheckGrammar(spec))), HasSubstr("too large"));
  }
}

}  // namespace
}  // namespace baton
