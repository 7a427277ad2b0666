#include "common/grammar/xgrammar/grammar_compiler.h"

namespace baton {
namespace {

Status NotBuilt() {
  return MakeStatus(StatusCode::kUnimplemented,
                    "this program was built without constrained output (BATON_GRAMMAR=OFF)");
}

}  // namespace

StatusOr<std::unique_ptr<GrammarCompiler>> MakeGrammarCompiler(const Tokenizer&,
                                                               const GrammarCompilerOptions&) {
  return NotBuilt();
}

Status CheckGrammar(const std::string&) {
  return NotBuilt();
}

}  // namespace baton
