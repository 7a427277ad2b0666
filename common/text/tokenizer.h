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
  bool add_special = false;  // put BOS (and EOS) around the text where the model's tokenizer does
  bool parse_special =
      false;  // special-token text becomes the special token; never for users' text
};

// What ends an encoding early.
struct EncodeLimits {
  size_t max_tokens = SIZE_MAX;     // soon after there are more
  std::function<bool()> cancelled;  // when it gives true; asked now and then, may be empty
};

// A model's tokenizer. Immutable, so thread-safe; copies share their data. Any bytes can be
// encoded: ill-formed UTF-8 counts as U+FFFD for each maximal ill-formed subpart.
class Tokenizer final {
 public:
  // Error: InvalidArgument when the spec contradicts itself: no pieces, an id outside of the
  // vocabulary, a split pattern that does not compile.
  static StatusOr<Tokenizer> Create(TokenizerSpec spec);

  // With `limits` that end it early: the tokens of a beginning of `text`, more than
  // `limits.max_tokens` or of no use.
  std::vector<TokenId> Encode(std::string_view text,
                              EncodeOptions options,
                              const EncodeLimits& limits = {}) const;

  // A prompt whose special tokens count only where they stand wholly in trusted text; text between
  // them is tokenised as one string, whatever its segments.
  std::vector<TokenId> EncodeSegments(std::span<const TextSegment> segments,
                                      bool add_special,
                                      const EncodeLimits& limits = {}) const;

  // The most bytes of text that one token stands for (not counting white space that an added token
  // swallows): n tokens never hold more than n times this. SIZE_MAX where the vocabulary sets no
  // bound, since it drops or joins characters that it does not know.
  size_t max_token_bytes() const;

  // The text of `tokens`: valid UTF-8, see Detokenizer. Ids outside of the vocabulary give nothing.
  std::string Decode(std::span<const TokenId> tokens, bool skip_special) const;

  size_t vocab_size() const;
  bool Contains(TokenId token) const;
  // The raw bytes of a token of the vocabulary ('▁' stands as it is in the vocabulary).
  std::string_view piece(TokenId token) const;
  PieceKind kind(TokenId token) const;
  // A control token or the unknown token: left out of text that users see.
  bool is_special(TokenId token) const;
  // The token that is exactly `text`: added tokens first, then pieces.
  std::optional<TokenId> Find(std::string_view text) const;

  const TokenizerSpec& spec() const;

 private:
  struct State;
  explicit Tokenizer(std::shared_ptr<const State> state) : state_(std::move(state)) {}

  std::shared_ptr<const State> state_;
};

}  // namespace baton
