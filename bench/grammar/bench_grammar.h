#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "common/base/status.h"
#include "common/grammar/grammar.h"
#include "common/text/tokenizer.h"

namespace baton {

// A vocabulary of `size` tokens for benchmarks, at least 2,048, made from a seed: the 256 bytes,
// numbers, the punctuation of JSON as tokenizers join it, words with and without a space before
// them, and 15% of text in other scripts; the last token ends the output. It has no merges, so it
// reads tokens but does not make them.
Tokenizer SyntheticVocabulary(int32_t size, uint64_t seed);

// The schema of an array of at least 8 objects, each with the same 20 fields of mixed types. No
// output of fewer than 600 tokens matches it.
std::string SchemaOfTwentyFields();

// Compiles a JSON schema and waits for it. Errors: those of JsonSchemaPart and Compile.
CompiledGrammar CompileSchema(GrammarCompiler& compiler, const std::string& schema);

// The text that Request::grammar needs for a JSON schema. Errors: those of JsonSchemaPart.
StatusOr<std::string> SpecOfSchema(const std::string& schema);

}  // namespace baton
