#pragma once

#include <string>

#include "common/base/ids.h"
#include "common/text/tokenizer.h"

namespace baton {

struct DetokenizeOptions {
  bool skip_special = true;
  // The tokens go on where other text stopped: a leading space that SentencePiece tokenizers put
  // before the first word is kept.
  bool continues_text = false;
};

// Turns one stream of tokens into text, piece by piece: what it returns is always whole characters,
// and all of it together is Tokenizer::Decode of all tokens. Ill-formed bytes become U+FFFD: one
// for each maximal subpart with byte-level vocabularies, one for each byte with SentencePiece ones
// (as Hugging Face's decoders do). Holds back at most 3 bytes. Not thread-safe.
class Detokenizer final {
 public:
  Detokenizer(Tokenizer tokenizer, DetokenizeOptions options)
      : tokenizer_(std::move(tokenizer)), options_(options) {}

  // The text that `token` completes; often one word, empty inside a character. An id outside of the
  // vocabulary gives nothing.
  std::string Append(TokenId token);
  // What is held back, made well-formed. Call once, at the end.
  std::string Flush();

 private:
  void AppendBytes(TokenId token);
  std::string TakeComplete(size_t held_back);

  Tokenizer tokenizer_;
  DetokenizeOptions options_;
  std::string pending_;
  bool started_ = false;
};

}  // namespace baton
