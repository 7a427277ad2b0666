#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "common/grammar/grammar.h"
#include "common/text/tokenizer.h"

// Outputs of a grammar without a model.
namespace baton {

// The mask of the next token after `tokens`, computed from the beginning.
std::vector<uint32_t> MaskAfter(const Grammar& grammar,
                                const std::vector<TokenId>& tokens,
                                std::span<const TokenId> stop_tokens,
                                int32_t vocabulary);

inline bool Allows(const std::vector<uint32_t>& mask, TokenId token) {
  return (mask[static_cast<size_t>(token) / 32] >> token % 32 & 1) != 0;
}

// A compiler for masks of exactly the tokenizer's tokens.
std::unique_ptr<GrammarCompiler> CompilerFor(const Tokenizer& tokenizer);

// The grammar of `spec`. Fails the test when there is an error.
std::shared_ptr<const Grammar> CompileNow(GrammarCompiler& compiler, const std::string& spec);
StatusOr<std::shared_ptr<const Grammar>> TryCompile(GrammarCompiler& compiler,
                                                    const std::string& spec);

// Chooses random allowed tokens until a stop token; nothing when there are more than `most`. Every
// second token is one that ends something, where that is allowed, so that outputs stay short.
std::optional<std::string> RandomOutput(const Grammar& grammar,
                                        const Tokenizer& tokenizer,
                                        std::mt19937_64& random,
                                        int most = 4000);

}  // namespace baton
