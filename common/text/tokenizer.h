#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/ids.h"
#include "common/base/status.h"
#include "common/text/text_segment.h"
#include "common/text/tokenizer_spec.h"

namespace baton {

struct EncodeOptions {
  bool add_special = false;  // add BOS (and EOS) if the model's tokenizer does
  bool parse_special =
      false;  // the text of a special token becomes that token; never set it for users' text
};

// Conditions that end an encoding early.
struct EncodeLimits {
  size_t max_tokens = SIZE_MAX;     // ends soon after there are more tokens
  std::function<bool()> cancelled;  // ends when it returns true; called at intervals; may be empty
};

// A model's tokenizer. Immutable, so thread-safe; copies share their data. Any bytes can be
// encoded: each maximal ill-formed subpart of UTF-8 is replaced by U+FFFD.
class Tokenizer final {
 public:
  // Error: InvalidArgument when the spec is invalid: no pieces, an id outside the vocabulary, a
  // split pattern that does not compile.
  static StatusOr<Tokenizer> Create(TokenizerSpec spec);

  // The tokens of `text`. When `max_tokens` ends the encoding early, the tokens of the beginning of
  // `text`, more than `max_tokens`. When it is cancelled, the returned tokens are meaningless.
  std::vector<TokenId> Encode(std::string_view text,
                              EncodeOptions options,
                              const EncodeLimits& limits = {}) const;

  // The tokens of a prompt. Special tokens are recognised only where they lie wholly in trusted
  // text. The text between two of them is tokenised as one string, even if it has several segments.
  std::vector<TokenId> EncodeSegments(std::span<const TextSegment> segments,
                                      bool add_special,
                                      const EncodeLimits& limits = {}) const;

  // The most bytes of text that one token can stand for (without the white space that an added
  // token removes): a text of n tokens has at most n times as many bytes. SIZE_MAX when there is no
  // bound, because the vocabulary drops or joins unknown characters.
  size_t max_token_bytes() const;

  // The text of `tokens` as valid UTF-8, see Detokenizer. Ids outside the vocabulary are ignored.
  std::string Decode(std::span<const TokenId> tokens, bool skip_special) const;

  size_t vocab_size() const;
  bool Contains(TokenId token) const;
  // The raw bytes of a token of the vocabulary ('▁' is not replaced by a space).
  std::string_view piece(TokenId token) const;
  // The bytes that the token stands for in decoded text: its piece or, as in Hugging Face's
  // library, the normalised text of an added token that is searched after normalising.
  std::string_view decoded_piece(TokenId token) const;
  PieceKind kind(TokenId token) const;
  // True for control tokens, the unknown token and special added tokens, which text for users
  // leaves out.
  bool is_special(TokenId token) const;
  // The token whose text is exactly `text`; added tokens take precedence over pieces.
  std::optional<TokenId> Find(std::string_view text) const;

  const TokenizerSpec& spec() const;

 private:
  struct State;
  explicit Tokenizer(std::shared_ptr<const State> state) : state_(std::move(state)) {}

  std::shared_ptr<const State> state_;
};

}  // namespace baton
