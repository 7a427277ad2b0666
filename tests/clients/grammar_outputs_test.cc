// Random outputs under JSON schemas, which an independent validator (jsonschema of PyPI) checks.
#include <algorithm>
#include <fstream>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "common/base/mapped_file.h"
#include "common/grammar/grammar_spec.h"
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
  std::string Write(const Grammar& grammar, int most) {
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
      if (token == kNoToken || std::ranges::count(ends, token) > 0) {
        return tokenizer_.Decode(tokens, true);
      }
      tokens.push_back(token);
    }
    return "";
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

void CheckOutputs(int count) {
  const auto spec = LoadTokenizerSpec(BATON_TEST_MODEL);
  ASSERT_TRUE(spec.ok()) << spec.status();
  const Tokenizer tokenizer = Tokenizer::Create(*spec).value();
  const auto compiler =
      MakeGrammarCompiler(tokenizer, {.vocabulary = static_cast<int32_t>(tokenizer.vocab_size())});
  ASSERT_TRUE(compiler.ok()) << compiler.status();
  const Json schemas =
      Json::parse(ReadFile(std::string(BATON_TEST_DATA) + "/grammar/schemas.json").value());
  std::vector<std::shared_ptr<const Grammar>> grammars;
  for (const Json& schema : schemas) {
    const auto part = JsonSchemaPart(schema);
    ASSERT_TRUE(part.ok()) << schema << part.status();
    grammars.push_back(CompileNow(**compiler, GrammarSpec(*part)));
    ASSERT_NE(grammars.back(), nullptr);
  }
  RandomWriter writer(tokenizer);
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/outputs.jsonl";
  std::ofstream file(path);
  int written = 0;
  int unended = 0;
  for (size_t i = 0; written < count; ++i) {
    const std::string output = writer.Write(*grammars[i % grammars.size()], kMaxTokens);
    if (::testing::Test::HasFailure()) return;
    if (output.empty()) {
      ASSERT_LT(++unended, count) << "outputs do not end";
      continue;
    }
    file << Json{{"schema", schemas[i % grammars.size()]}, {"output", output}}.dump() << "\n";
    ++written;
  }
  file.close();
  fmt::print("{} outputs; {} did not end within {} tokens and were left out\n",
             written,
             unended,
             kMaxTokens);
  RunScript("validate_outputs.py", {path, std::to_string(count)});
}

TEST(GrammarOutputs, ARandomThousandIsValid) {
  CheckOutputs(1000);
}

TEST(GrammarOutputs, DISABLED_TenThousandAreValid) {
  CheckOutputs(10'000);
}

}  // namespace
}  // namespace baton
