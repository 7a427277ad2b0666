#include "bench/engine/request_grammar.h"

#include <fstream>
#include <iterator>
#include <utility>

#include "bench/grammar/bench_grammar.h"
#include "common/grammar/xgrammar/grammar_compiler.h"
#include "common/model/tokenizer_source.h"

namespace baton {

StatusOr<std::unique_ptr<RequestGrammar>> RequestGrammar::Create(const std::string& schema,
                                                                 const std::string& model,
                                                                 int32_t vocabulary) {
  std::string text = SchemaOfTwentyFields();
  if (schema != kFields) {
    std::ifstream file(schema);
    if (!file) return InvalidArgument("--grammar: the file {} cannot be read", schema);
    text.assign(std::istreambuf_iterator<char>(file), {});
  }
  StatusOr<TokenizerSpec> own = LoadTokenizerSpec(model);
  const bool synthetic = !own.ok();
  StatusOr<Tokenizer> tokenizer =
      synthetic ? SyntheticVocabulary(vocabulary, 1) : Tokenizer::Create(*std::move(own));
  if (!tokenizer.ok()) return tokenizer.status();
  std::unique_ptr<RequestGrammar> grammar(new RequestGrammar(*std::move(tokenizer), synthetic));
  BATON_ASSIGN_OR_RETURN(grammar->spec_, SpecOfSchema(text));
  BATON_ASSIGN_OR_RETURN(grammar->compiler_,
                         MakeGrammarCompiler(grammar->tokenizer_, {.vocabulary = vocabulary}));
  BATON_RETURN_IF_ERROR(CompileSchema(*grammar->compiler_, text).status());
  return grammar;
}

void RequestGrammar::Constrain(Request& request) const {
  request.grammar = spec_;
  request.stop_tokens = tokenizer_.spec().eos;
}

}  // namespace baton
