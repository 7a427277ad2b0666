// Schemas, regular expressions, EBNF grammars and tools from clients: the checks, the parsers of
// XGrammar behind them, and the masks of the first tokens of an output.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <future>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "common/base/json.h"
#include "common/grammar/grammar_spec.h"
#include "common/grammar/xgrammar/grammar_compiler.h"
#include "common/text/tokenizer.h"
#include "tests/support/byte_tokenizer.h"

namespace baton {
namespace {

constexpr int kTokens = 12;  // of the output

Tokenizer Tokens() {
  return BytesAnd(
      {"ab", "abc", "{\"", "\": ", "\", \"", "\"}", "12", "true", "\xc3\xa9", " a", "]}"});
}

// Every token that a mask allows must be accepted. `choice` chooses among them.
void Generate(const Grammar& grammar, const Tokenizer& tokenizer, uint64_t choice) {
  const auto matcher = grammar.NewMatcher(tokenizer.spec().eos);
  std::vector<uint32_t> mask((tokenizer.vocab_size() + 31) / 32);
  for (int step = 0; step < kTokens; ++step) {
    matcher->FillMask(mask);
    std::vector<TokenId> allowed;
    for (size_t token = 0; token < tokenizer.vocab_size(); ++token) {
      if ((mask[token / 32] >> token % 32 & 1) != 0) allowed.push_back(static_cast<TokenId>(token));
    }
    if (allowed.empty()) return;
    choice = choice * 6364136223846793005U + 1442695040888963407U;
    const TokenId token = allowed[(choice >> 33) % allowed.size()];
    if (!matcher->Accept(token)) std::abort();
    if (token == tokenizer.spec().eos[0]) return;
  }
}

void Check(const StatusOr<GrammarPart>& part) {
  if (!part.ok()) return;
  static const Tokenizer tokenizer = Tokens();
  static const auto compiler =
      MakeGrammarCompiler(
          tokenizer, {.vocabulary = static_cast<int32_t>(tokenizer.vocab_size()), .cache_bytes = 1})
          .value();
  const std::string spec = GrammarSpec(*part);
  if (!CheckGrammar(spec).ok()) return;
  std::promise<CompiledGrammar> done;
  const auto wanted = std::make_shared<const bool>(true);
  compiler->Compile(
      spec, 0, wanted, [&](CompiledGrammar grammar) { done.set_value(std::move(grammar)); });
  const CompiledGrammar grammar = done.get_future().get();
  if (grammar.ok()) Generate(**grammar, tokenizer, spec.size());
}

}  // namespace
}  // namespace baton

// The first byte chooses the kind; the rest is the text.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 1) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  const baton::GrammarLimits limits = {
      .max_schema_bytes = 4096, .max_text_bytes = 1024, .max_repeats = 200};
  switch (data[0] % 3) {
    case 0: {
      const auto schema = baton::ParseOrderedJson("schema", text);
      if (schema.ok()) baton::Check(baton::JsonSchemaPart(*schema, limits));
      break;
    }
    case 1:
      baton::Check(baton::RegexPart(text, limits));
      break;
    default:
      baton::Check(baton::EbnfPart(text, limits));
  }
  return 0;
}
