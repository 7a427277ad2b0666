#include "tests/unit/grammar/grammar_walk.h"

#include <algorithm>
#include <future>
#include <utility>

#include <gtest/gtest.h>

#include "common/grammar/xgrammar/grammar_compiler.h"
#include "kernels/token_mask.h"

namespace baton {

std::vector<uint32_t> MaskAfter(const Grammar& grammar,
                                const std::vector<TokenId>& tokens,
                                std::span<const TokenId> stop_tokens,
                                int32_t vocabulary) {
  std::vector<uint32_t> mask(MaskWords(vocabulary));
  const auto matcher = grammar.NewMatcher(stop_tokens);
  for (const TokenId token : tokens) EXPECT_TRUE(matcher->Accept(token)) << token;
  matcher->FillMask(mask);
  return mask;
}

std::unique_ptr<GrammarCompiler> CompilerFor(const Tokenizer& tokenizer) {
  const auto vocabulary = static_cast<int32_t>(tokenizer.vocab_size());
  return MakeGrammarCompiler(tokenizer, {.vocabulary = vocabulary}).value();
}

StatusOr<std::shared_ptr<const Grammar>> TryCompile(GrammarCompiler& compiler,
                                                    const std::string& spec) {
  std::promise<CompiledGrammar> done;
  const auto wanted = std::make_shared<const bool>(true);
  compiler.Compile(
      spec, 0, wanted, [&](CompiledGrammar grammar) { done.set_value(std::move(grammar)); });
  return done.get_future().get();
}

std::shared_ptr<const Grammar> CompileNow(GrammarCompiler& compiler, const std::string& spec) {
  auto grammar = TryCompile(compiler, spec);
  EXPECT_TRUE(grammar.ok()) << grammar.status() << "\n" << spec;
  return grammar.ok() ? *grammar : nullptr;
}

std::optional<std::string> RandomOutput(const Grammar& grammar,
                                        const Tokenizer& tokenizer,
                                        std::mt19937_64& random,
                                        int most) {
  const std::vector<TokenId>& ends = tokenizer.spec().eos;
  const auto vocabulary = static_cast<int32_t>(tokenizer.vocab_size());
  const auto matcher = grammar.NewMatcher(ends);
  std::vector<uint32_t> mask(MaskWords(vocabulary));
  std::string text;
  for (int i = 0; i < most; ++i) {
    matcher->FillMask(mask);
    std::vector<TokenId> allowed;
    std::vector<TokenId> ending;
    for (TokenId token = 0; token < vocabulary; ++token) {
      if (!Allows(mask, token)) continue;
      allowed.push_back(token);
      const std::string_view piece = tokenizer.piece(token);
      const bool ends_something =
          piece == "\"" || piece == "}" || piece == "]" || piece == "<" || piece == ",";
      if (ends_something || std::ranges::count(ends, token) > 0) ending.push_back(token);
    }
    EXPECT_FALSE(allowed.empty()) << "no token may follow " << text;
    if (allowed.empty()) return std::nullopt;
    const auto& from = !ending.empty() && random() % 2 == 0 ? ending : allowed;
    const TokenId token = from[random() % from.size()];
    EXPECT_TRUE(matcher->Accept(token)) << token << " after " << text;
    if (std::ranges::count(ends, token) > 0) return text;
    text += tokenizer.piece(token);
  }
  return std::nullopt;
}

}  // namespace baton
