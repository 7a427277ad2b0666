#pragma once

#include <span>
#include <string>

#include "common/base/ids.h"
#include "common/text/tokenizer.h"

namespace baton {

struct DetokenizeOptions {
  bool skip_special = true;
  std::span<const TokenId> shown_special = {};  // special tokens that are not left out
  // The tokens continue earlier text, so the leading space of the first token is kept. (Otherwise
  // it is dropped where SentencePiece tokenizers add one before the first word.)
  bool continues_text = false;
};

// Turns one stream of tokens into text incrementally. Each returned text has only whole characters,
// and all returned texts together are Tokenizer::Decode of all tokens. Ill-formed bytes become
// U+FFFD, as in Hugging Face's decoders: one for each maximal subpart with byte-level vocabularies,
// one for each byte with SentencePiece vocabularies. Holds back at most 3 bytes. Not thread-safe.
class Detokenizer final {
 public:
  Detokenizer(Tokenizer tokenizer, DetokenizeOptions options)
      : tokenizer_(std::move(tokenizer)), options_(options) {}

  // The text that `token` completes: often one word; empty while a character is incomplete, and for
  // an id outside the vocabulary.
  std::string Append(TokenId token);
  // The bytes that are held back, made well-formed. Call once, at the end.
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
