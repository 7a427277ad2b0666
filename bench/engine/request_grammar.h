#pragma once

#include <memory>
#include <string>

#include "common/base/status.h"
#include "common/cluster/request.h"
#include "common/grammar/grammar.h"
#include "common/text/tokenizer.h"

namespace baton {

// Constrains the requests of a benchmark by one JSON schema.
class RequestGrammar final {
 public:
  static constexpr const char* kFields = "fields";

  // `schema`: a file, or kFields for the schema of 20 fields. The vocabulary is that of the model
  // at `model`, or a synthetic one of `vocabulary` tokens when the model has no tokenizer. Compiles
  // the schema, so that no request waits for it. Errors: InvalidArgument.
  static StatusOr<std::unique_ptr<RequestGrammar>> Create(const std::string& schema,
                                                          const std::string& model,
                                                          int32_t vocabulary);

  void Constrain(Request& request) const;
  GrammarCompiler& compiler() const { return *compiler_; }
  bool synthetic() const { return synthetic_; }

 private:
  RequestGrammar(Tokenizer tokenizer, bool synthetic)
      : tokenizer_(std::move(tokenizer)), synthetic_(synthetic) {}

  const Tokenizer tokenizer_;
  const bool synthetic_;
  std::string spec_;
  std::unique_ptr<GrammarCompiler> compiler_;
};

}  // namespace baton
