#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "common/base/token_id.h"

// Constrained output: which tokens may follow, given the tokens so far.
namespace baton {

// The state of one output under a grammar: a function of the accepted tokens. One thread at a time.
class GrammarMatcher {
 public:
  virtual ~GrammarMatcher() = default;
  // Appends a token to the output. False when the grammar does not allow it; no later call is
  // useful then.
  virtual bool Accept(TokenId token) = 0;
  // Sets bit t % 32 of mask[t / 32] to whether token t may follow, for the tokens of the model. A
  // stop token may follow where the output is complete. After a stop token nothing may follow.
  virtual void FillMask(std::span<uint32_t> mask) = 0;
  // Takes the last `count` accepted tokens back, stop tokens included. failure() must be OK.
  virtual void GoBack(size_t count) = 0;
  // How many of `tokens`, which are guesses, may follow the output one after another. Stops at a
  // stop token, and where the answer would take long. Leaves the output as it is, except that
  // failure() may be an error afterwards.
  virtual size_t CountAllowed(std::span<const TokenId> tokens) = 0;
  // Guesses where the grammar leaves one text only: tokens that spell the text which must follow
  // the output and `tokens`, each as long as possible, at most `most`. None where more than one
  // text may follow. Other tokens may spell the text, too. Otherwise as CountAllowed.
  virtual std::vector<TokenId> Forced(std::span<const TokenId> tokens, size_t most) = 0;
  // Why nothing may follow any more: InvalidArgument when the output is beyond what the parser of
  // grammars supports. OK where the output goes on, and after a stop token.
  virtual Status failure() const = 0;
};

// A compiled grammar. Immutable, thread-safe.
class Grammar {
 public:
  virtual ~Grammar() = default;
  // The state of an empty output. `stop_tokens` end the output.
  virtual std::unique_ptr<GrammarMatcher> NewMatcher(
      std::span<const TokenId> stop_tokens) const = 0;
  // Approximate memory, in bytes.
  virtual size_t bytes() const = 0;
  // About the longest time that a recent call of its matchers took. Most calls take microseconds;
  // the first calls of some grammars take up to 130 ms.
  virtual Duration recent_call() const = 0;
};

using CompiledGrammar = StatusOr<std::shared_ptr<const Grammar>>;

// Compiles grammars for the vocabulary of one model, and keeps those that were used last.
// Thread-safe.
class GrammarCompiler {
 public:
  virtual ~GrammarCompiler() = default;
  // Compiles `spec` (grammar_spec.h) for `client` (RequestOptions::client_tag), so that the mask of
  // an empty output is known, too. Clients take turns: a grammar waits at most for one other
  // grammar of each other client. A grammar whose turn comes when `wanted` has expired for all who
  // wait for it is not compiled. Calls `done` once: at once on this thread when the grammar is
  // known or the client has too many waiting, else later on another thread. Errors: InvalidArgument
  // when the spec cannot be compiled; ResourceExhausted when the client has reached its limit;
  // Cancelled when the grammar is no longer wanted.
  virtual void Compile(const std::string& spec,
                       uint64_t client,
                       std::weak_ptr<const void> wanted,
                       std::function<void(CompiledGrammar)> done) = 0;
};

}  // namespace baton
