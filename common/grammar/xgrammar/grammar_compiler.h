#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "common/base/status.h"
#include "common/grammar/grammar.h"
#include "common/text/tokenizer.h"

namespace baton {

struct GrammarCompilerOptions {
  int32_t vocabulary = 0;  // logits of the model, at least as many as the tokenizer has tokens
  // Of compiled grammars that no request uses; and as much again for what new grammars share.
  size_t cache_bytes = size_t{256} << 20;
  size_t max_waiting = 32;  // grammars of one client that wait to be compiled
};

// The compiler for the vocabulary of `tokenizer`, which compiles on a thread of its own. The end
// tokens and all control tokens are outside of every grammar, except for the markers of chat
// formats, which count as their text. Errors: Unimplemented when the program was built without
// BATON_GRAMMAR; InvalidArgument when the vocabulary is smaller than the tokenizer's.
StatusOr<std::unique_ptr<GrammarCompiler>> MakeGrammarCompiler(
    const Tokenizer& tokenizer, const GrammarCompilerOptions& options);

// Checks that `spec` (grammar_spec.h) is a grammar that allows an output, without compiling it for
// a vocabulary. Errors: InvalidArgument with the reason; Unimplemented as above. Thread-safe.
Status CheckGrammar(const std::string& spec);

}  // namespace baton
