// Random outputs under JSON schemas, which an independent validator (jsonschema of PyPI) checks.
#include <algorithm>
#include <fstream>
#include <iterator>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "common/base/mapped_file.h"
#include "common/chat_format/chat_parser.h"
#include "common/grammar/call_grammar.h"
#include "common/grammar/grammar_spec.h"
#include "common/grammar/nested_calls.h"
#include "common/grammar/schema_check.h"
#include "common/grammar/tagged_calls.h"
#include "common/grammar/xgrammar/grammar_compiler.h"
#include "common/model/tokenizer_source.h"
#include "kernels/backend.h"
#include "kernels/token_mask.h"
#include "tests/clients/run_script.h"
#include "tests/support/temporary_folder.h"
#include "tests/unit/grammar/grammar_walk.h"

namespace baton {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kMaxTokens = 1000;

// Chooses tokens as a worker does, at temperature 2, from random logits under the masks of one
// grammar. The logits prefer tokens that end something, so that outputs stay short.
class RandomWriter {
 public:
  explicit RandomWriter(const Tokenizer& tokenizer)
      : tokenizer_(tokenizer), backend_(OpenBackend(BackendOptions()).value()) {
    const size_t vocabulary = tokenizer.vocab_size();
    for (size_t i = 0; i < vocabulary + kShift; ++i) {
      noise_.push_back(std::normal_distribution<float>(0, 4)(random_));
    }
    for (size_t i = 0; i < vocabulary; ++i) {
      const std::string_view piece = tokenizer.piece(static_cast<TokenId>(i));
      const bool ends = piece.find_first_of("\"}],") != std::string_view::npos;
      endings_.push_back(ends ? 12.0f : 0.0f);
    }
  }

  // Empty when the output does not end within `most` tokens.
  std::vector<TokenId> Write(const Grammar& grammar, int most) {
    const std::vector<TokenId>& ends = tokenizer_.spec().eos;
    const size_t vocabulary = tokenizer_.vocab_size();
    const auto matcher = grammar.NewMatcher(ends);
    TokenMask mask(static_cast<int32_t>(vocabulary));
    SamplingParams params;
    params.temperature = 2;
    params.seed = random_();
    std::vector<TokenId> tokens;
    for (int i = 0; i < most; ++i) {
      matcher->FillMask(mask.words());
      mask.Finish();
      const size_t shift = random_() % kShift;
      std::vector<float> logits(noise_.begin() + static_cast<int64_t>(shift),
                                noise_.begin() + static_cast<int64_t>(shift + vocabulary));
      for (size_t t = 0; t < vocabulary; ++t) logits[t] += endings_[t];
      for (const TokenId end : ends) logits[static_cast<size_t>(end)] += 20;
      const SamplingRow row = {.params = &params,
                               .position = static_cast<uint64_t>(i),
                               .prompt = {},
                               .output = {},
                               .banned = {},
                               .mask = &mask};
      const TokenId token = Choose(logits, row);
      EXPECT_NE(token, kNoToken) << tokenizer_.Decode(tokens, true);
      EXPECT_TRUE(matcher->Accept(token));
      if (token == kNoToken || std::ranges::count(ends, token) > 0) return tokens;
      tokens.push_back(token);
    }
    return {};
  }

 private:
  static constexpr size_t kShift = 5003;

  TokenId Choose(std::vector<float>& logits, const SamplingRow& row) {
    Ops& ops = backend_->ops();
    SampledToken out;
    const Tensor view = {.data = reinterpret_cast<std::byte*>(logits.data()),
                         .dtype = DType::kF32,
                         .rows = 1,
                         .cols = static_cast<int64_t>(logits.size()),
                         .stride = static_cast<int64_t>(logits.size())};
    ops.Sample(view, {&row, 1}, {&out, 1});
    return out.token;
  }

  const Tokenizer& tokenizer_;
  const std::unique_ptr<Backend> backend_;
  std::mt19937_64 random_{20};
  std::vector<float> noise_;
  std::vector<float> endings_;
};

// The test model's tokenizer; with `special`, the markers of all formats are special tokens of it.
Tokenizer TestTokenizer(bool special) {
  TokenizerSpec spec = LoadTokenizerSpec(BATON_TEST_MODEL).value();
  if (special) {
    for (const std::string_view marker : AllTokens()) {
      spec.pieces.push_back({std::string(marker), PieceKind::kControl});
    }
  }
  return Tokenizer::Create(std::move(spec)).value();
}

// Outputs with the schemas that they must match.
class OutputCheck {
 public:
  explicit OutputCheck(bool special)
      : tokenizer_(TestTokenizer(special)),
        compiler_(MakeGrammarCompiler(tokenizer_,
                                      {.vocabulary = static_cast<int32_t>(tokenizer_.vocab_size())})
                      .value()),
        schemas_(
            Json::parse(ReadFile(std::string(BATON_TEST_DATA) + "/grammar/schemas.json").value())) {
  }

  const Json& schemas() const { return schemas_; }

  void Add(const Json& schema, const GrammarPart& part, const MarkedFormats& formats = {}) {
    auto grammar = CompileNow(*compiler_, GrammarSpec(part));
    ASSERT_NE(grammar, nullptr);
    cases_.push_back({schema, std::move(grammar), formats});
  }

  // Writes `count` outputs of all cases in turn, and validates them.
  void Check(int count) {
    RandomWriter writer(tokenizer_);
    const std::string path = folder_.path() + "/outputs.jsonl";
    std::ofstream file(path);
    int written = 0;
    int unended = 0;
    for (size_t i = 0; written < count; ++i) {
      const Case& one = cases_[i % cases_.size()];
      const std::vector<TokenId> output = writer.Write(*one.grammar, kMaxTokens);
      if (::testing::Test::HasFailure()) return;
      if (output.empty()) {
        ASSERT_LT(++unended, count) << "outputs do not end";
        continue;
      }
      file << Json{{"schema", one.schema}, {"output", ValueOf(one, output)}}.dump() << "\n";
      ++written;
    }
    file.close();
    fmt::print("{} outputs; {} did not end within {} tokens and were left out\n",
               written,
               unended,
               kMaxTokens);
    RunScript("validate_outputs.py", {path, std::to_string(count)});
  }

 private:
  struct Case {
    Json schema;
    std::shared_ptr<const Grammar> grammar;
    MarkedFormats formats;  // without calls: the output is the value
  };

  // The value of an output: itself, or the arguments of its only call.
  std::string ValueOf(const Case& one, const std::vector<TokenId>& output) const {
    if (one.formats.calls == ToolCallFormat::kNone) return tokenizer_.Decode(output, true);
    const Json tools = {{{"name", "f"}, {"parameters", one.schema}}};
    const bool harmony = one.formats.calls == ToolCallFormat::kHarmony;
    ChatParser parser({.calls = one.formats.calls,
                       .reasoning = harmony ? ReasoningFormat::kHarmony : ReasoningFormat::kNone,
                       .tools = std::make_shared<const ToolSchemas>(tools),
                       .special = one.formats.special});
    std::vector<ChatEvent> events;
    const auto add = [&](std::vector<ChatEvent> more) {
      std::ranges::move(more, std::back_inserter(events));
    };
    for (const TokenId token : output) {
      const std::string_view piece = tokenizer_.piece(token);
      add(tokenizer_.is_special(token) ? parser.AppendSpecial(piece) : parser.Append(piece));
    }
    if (harmony) add(parser.AppendSpecial("<|call|>"));
    add(parser.Finish());
    std::string arguments;
    int calls = 0;
    for (const ChatEvent& event : events) {
      calls += event.kind == ChatEvent::Kind::kCallEnd ? 1 : 0;
      if (event.kind == ChatEvent::Kind::kArguments) arguments += event.text;
    }
    EXPECT_EQ(calls, 1) << tokenizer_.Decode(output, false);
    return arguments;
  }

  const Tokenizer tokenizer_;
  const std::unique_ptr<GrammarCompiler> compiler_;
  const Json schemas_;
  const TemporaryFolder folder_;
  std::vector<Case> cases_;
};

void CheckValues(int count) {
  OutputCheck check(/*special=*/false);
  for (const Json& schema : check.schemas()) {
    const auto part = JsonSchemaPart(schema);
    ASSERT_TRUE(part.ok()) << schema << part.status();
    ASSERT_NO_FATAL_FAILURE(check.Add(schema, *part));
  }
  check.Check(count);
}

// A format of each way to write arguments.
std::vector<ToolCallFormat> FormatsOfCalls() {
  std::vector<ToolCallFormat> formats = {ToolCallFormat::kGemma, ToolCallFormat::kMiniMaxM3};
  for (int i = 1; i <= static_cast<int>(ToolCallFormat::kHarmony); ++i) {
    formats.push_back(static_cast<ToolCallFormat>(i));
  }
  return formats;
}

// Arguments with each of the schemas, in these formats. `special`: the markers of calls are special
// tokens.
void CheckCalls(int count, bool special) {
  OutputCheck check(special);
  for (const Json& schema : check.schemas()) {
    // References lead to the whole schema, which is a part here.
    if (schema.dump().find("$ref") != std::string::npos) continue;
    const Json parameters = {
        {"type", "object"}, {"properties", {{"a", schema}, {"b", schema}}}, {"required", {"a"}}};
    for (const ToolCallFormat format : FormatsOfCalls()) {
      const auto checked = CheckedSchema(
          parameters, GrammarLimits(), EndsAtMarkers(format) ? SchemaUse::kCall : SchemaUse::kJson);
      ASSERT_TRUE(checked.ok()) << schema << checked.status();
      const MarkedFormats formats = {
          .calls = format,
          .special = special ? SpecialMarkers(TokensOf(format)) : SpecialMarkers()};
      const auto part = CallsPart(formats, {{"f", *checked, parameters}}, true);
      // The only keywords that these formats do not enforce inside of a parameter.
      const std::string text = schema.dump();
      const bool refused =
          IsNested(format) && (text.find("minProperties") != std::string::npos ||
                               text.find("maxProperties") != std::string::npos ||
                               text.find("patternProperties") != std::string::npos);
      if (refused && !part.ok()) continue;
      ASSERT_TRUE(part.ok()) << schema << part.status();
      ASSERT_NO_FATAL_FAILURE(check.Add(parameters, *part, formats));
    }
  }
  check.Check(count);
}

TEST(GrammarOutputs, RandomOutputsAreValid) {
  CheckValues(400);
}

TEST(GrammarOutputs, ArgumentsOfForcedCallsAreValid) {
  CheckCalls(250, /*special=*/false);
}

TEST(GrammarOutputs, ArgumentsOfCallsMarkedBySpecialTokensAreValid) {
  CheckCalls(400, /*special=*/true);
}

TEST(GrammarOutputs, DISABLED_TenThousandAreValid) {
  CheckValues(10'000);
}

TEST(GrammarOutputs, DISABLED_ArgumentsOfTenThousandForcedCallsAreValid) {
  CheckCalls(10'000, /*special=*/false);
}

TEST(GrammarOutputs, DISABLED_ArgumentsOfTenThousandCallsMarkedBySpecialTokensAreValid) {
  CheckCalls(10'000, /*special=*/true);
}

}  // namespace
}  // namespace baton
