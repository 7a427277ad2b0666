#include "common/text/tokenizer.h"

#include <algorithm>
#include <utility>
#include <variant>

#include <absl/container/flat_hash_map.h>

#include "common/base/check.h"
#include "common/text/added_tokens.h"
#include "common/text/bpe_encoder.h"
#include "common/text/detokenizer.h"
#include "common/text/metaspace.h"
#include "common/text/normalizer.h"
#include "common/text/pre_tokenizer.h"
#include "common/text/spec_check.h"
#include "common/text/unigram_encoder.h"
#include "common/text/utf8.h"

namespace baton {
namespace {

std::vector<AddedToken> SelectAdded(const TokenizerSpec& spec, bool normalized) {
  std::vector<AddedToken> selected;
  for (const AddedToken& token : spec.added) {
    if (token.normalized == normalized) selected.push_back(token);
  }
  if (normalized) {
    const Normalizer normalizer(spec.normalizer);
    for (AddedToken& token : selected) {
      if (!token.literal) token.text = normalizer.Apply(token.text);
    }
  }
  return selected;
}

// Whether no merge joins a character other than '▁' with a '▁' after it, so that text may be cut
// between the two without changing its tokens.
bool MetaspaceStartsPieces(const TokenizerSpec& spec) {
  // The sums of a unigram model begin at the beginning of the text, which decides between ways of
  // nearly equal sums.
  if (spec.model == TokenModel::kUnigram) return false;
  if (spec.alphabet != BpeAlphabet::kCharacters) return false;
  for (const Merge& merge : spec.merges) {
    const std::string_view left = spec.pieces[static_cast<size_t>(merge.left)].bytes;
    const std::string_view right = spec.pieces[static_cast<size_t>(merge.right)].bytes;
    if (right.starts_with(kMetaspace) && !left.ends_with(kMetaspace)) return false;
  }
  return true;
}

// Whether every byte is a token of `kind`, so that no text is unknown.
bool HasAllBytes(const TokenizerSpec& spec, PieceKind kind) {
  bool found[256] = {};
  for (const Piece& piece : spec.pieces) {
    if (piece.kind == kind && piece.bytes.size() == 1) {
      found[static_cast<uint8_t>(piece.bytes[0])] = true;
    }
  }
  return std::all_of(std::begin(found), std::end(found), [](bool is) { return is; });
}

// The most bytes of text that one byte of the result of `step` can stand for; 0 when there is no
// bound.
size_t Shrinking(const NormalizerStep& step) {
  switch (step.kind) {
    case NormalizerStep::Kind::kPrepend:
      return 1;
    case NormalizerStep::Kind::kReplace:
      return step.to.empty() ? 0 : 1 + step.from.size() / step.to.size();
    case NormalizerStep::Kind::kNfc:
    case NormalizerStep::Kind::kNfd:
    case NormalizerStep::Kind::kNfkc:
    case NormalizerStep::Kind::kNfkd:
      return 4;  // a character of four bytes may become an ASCII letter
    case NormalizerStep::Kind::kJoinSpaces:
    case NormalizerStep::Kind::kTrimSpaces:
    case NormalizerStep::Kind::kStripLeft:
    case NormalizerStep::Kind::kStripRight:
    case NormalizerStep::Kind::kCharsmap:
    case NormalizerStep::Kind::kCharsmapByGrapheme:
      return 0;
  }
  return 0;
}

size_t MaxTokenBytes(const TokenizerSpec& spec) {
  size_t longest = 1;
  for (const Piece& piece : spec.pieces) longest = std::max(longest, piece.bytes.size());
  for (const AddedToken& token : spec.added) longest = std::max(longest, token.text.size());
  const bool by_bytes = spec.alphabet == BpeAlphabet::kBytes;
  const bool all_known = HasAllBytes(spec, by_bytes ? PieceKind::kNormal : PieceKind::kByte) &&
                         (by_bytes || spec.byte_fallback);
  if (!all_known) {
    if (!spec.unknown.has_value() || spec.fuse_unknown) return SIZE_MAX;
    longest = std::max<size_t>(longest, 4);
  }
  for (const NormalizerStep& step : spec.normalizer) {
    const size_t factor = Shrinking(step);
    if (factor == 0) return SIZE_MAX;
    longest *= factor;
  }
  return longest;
}

// The parts of `ranges` (ascending and disjoint) inside `section`, relative to its start.
std::vector<TextRange> Clip(std::span<const TextRange> ranges, TextRange section) {
  std::vector<TextRange> clipped;
  auto it = std::upper_bound(
      ranges.begin(), ranges.end(), section.begin, [](size_t pos, const TextRange& range) {
        return pos < range.end;
      });
  for (; it != ranges.end() && it->begin < section.end; ++it) {
    clipped.push_back({std::max(it->begin, section.begin) - section.begin,
                       std::min(it->end, section.end) - section.begin});
  }
  return clipped;
}

std::variant<BpeEncoder, UnigramEncoder> MakeEncoder(const TokenizerSpec& spec) {
  if (spec.model == TokenModel::kUnigram) return UnigramEncoder(spec);
  return BpeEncoder(spec);
}

}  // namespace

struct Tokenizer::State {
  State(TokenizerSpec checked_spec, PreTokenizer splitter)
      : spec(std::move(checked_spec)),
        raw_added(SelectAdded(spec, false)),
        normalized_added(SelectAdded(spec, true)),
        special_normalized(std::ranges::any_of(
            spec.added, [](const AddedToken& t) { return t.special && t.normalized; })),
        normalizer(spec.normalizer),
        pre_tokenizer(std::move(splitter)),
        encoder(MakeEncoder(spec)),
        cut_at_metaspace(MetaspaceStartsPieces(spec)),
        max_token_bytes(MaxTokenBytes(spec)) {
    for (const AddedToken& token : spec.added) {
      id_of_text.try_emplace(token.text, token.id);
      if (token.special) special[static_cast<size_t>(token.id)] = true;
    }
    for (const AddedToken& token : SelectAdded(spec, true)) decoded.emplace(token.id, token.text);
    for (size_t i = 0; i < spec.pieces.size(); ++i) {
      const PieceKind kind = spec.pieces[i].kind;
      if (kind == PieceKind::kControl || kind == PieceKind::kUnknown) special[i] = true;
      if (kind != PieceKind::kByte) {
        id_of_text.try_emplace(spec.pieces[i].bytes, static_cast<TokenId>(i));
      }
    }
  }

  // The state of one call of Encode: its tokens, its trusted ranges, and its limits.
  struct Job {
    // Whether a limit is reached. Called for each piece; calls limits.cancelled only now and then.
    bool Ended() {
      constexpr int kPiecesBetween = 256;
      if (limits.cancelled && ++pieces % kPiecesBetween == 0 && limits.cancelled()) ended = true;
      return ended || tokens.size() > limits.max_tokens;
    }

    AddedTokenFinder::Trust trust;
    const EncodeLimits& limits;
    std::vector<TokenId> tokens = {};
    int pieces = 0;
    bool ended = false;
  };

  void EncodeText(std::string_view text, Job& job) const;
  void EncodeSection(std::string_view text, TextRange section, Job& job) const;
  std::vector<TextRange> MoveTrust(std::string_view text, std::span<const TextRange> trusted) const;
  void EncodePlain(std::string_view text, bool first, Job& job) const;
  void EncodePiece(std::string_view piece, Job& job) const;

  TokenizerSpec spec;
  AddedTokenFinder raw_added;
  AddedTokenFinder normalized_added;
  bool special_normalized;  // at least one of normalized_added is a special token
  Normalizer normalizer;
  PreTokenizer pre_tokenizer;
  std::variant<BpeEncoder, UnigramEncoder> encoder;
  bool cut_at_metaspace;
  size_t max_token_bytes;
  std::vector<bool> special = std::vector<bool>(spec.pieces.size());
  absl::flat_hash_map<std::string, TokenId> id_of_text;
  absl::flat_hash_map<TokenId, std::string> decoded;  // where it may differ from the piece
};

void Tokenizer::State::EncodeText(std::string_view text, Job& job) const {
  size_t done = 0;
  for (const AddedTokenFinder::Match& match : raw_added.Find(text, job.trust)) {
    EncodeSection(text, {done, match.range.begin}, job);
    if (job.Ended()) return;
    job.tokens.push_back(match.id);
    done = match.range.end;
  }
  EncodeSection(text, {done, text.size()}, job);
}

// `section`: the text between two matches of raw_added, which are found before normalising.
void Tokenizer::State::EncodeSection(std::string_view text, TextRange section, Job& job) const {
  const bool first = section.begin == 0;
  const std::vector<TextRange> trusted = Clip(job.trust.ranges, section);
  text = text.substr(section.begin, section.end - section.begin);
  if (text.empty()) return;
  AddedTokenFinder::Trust trust{.all = job.trust.all, .ranges = trusted};
  std::vector<TextRange> moved;
  std::string normalized;
  if (!normalizer.empty()) {
    // Normalising moves text, so the trusted ranges must move with it.
    if (!trusted.empty() && special_normalized) moved = MoveTrust(text, trusted);
    text = normalized = normalizer.Apply(text);
    trust.ranges = moved;
  }
  if (spec.prefix_space == PrefixSpace::kSection && !text.empty()) {
    if (normalizer.empty()) moved = trusted;
    for (TextRange& range : moved) {
      range = {range.begin + kMetaspace.size(), range.end + kMetaspace.size()};
    }
    trust.ranges = moved;
    text = normalized = std::string(kMetaspace).append(text);
  }
  size_t done = 0;
  for (const AddedTokenFinder::Match& match : normalized_added.Find(text, trust)) {
    EncodePlain(text.substr(done, match.range.begin - done), first && done == 0, job);
    if (job.Ended()) return;
    job.tokens.push_back(match.id);
    done = match.range.end;
  }
  EncodePlain(text.substr(done), first && done == 0, job);
}

// The `trusted` ranges of `text` as ranges of the normalised text. None when they cannot be
// determined; then no special token is recognised.
std::vector<TextRange> Tokenizer::State::MoveTrust(std::string_view text,
                                                   std::span<const TextRange> trusted) const {
  std::vector<std::string_view> parts;  // alternately untrusted and trusted
  size_t done = 0;
  for (const TextRange& range : trusted) {
    parts.push_back(text.substr(done, range.begin - done));
    parts.push_back(text.substr(range.begin, range.end - range.begin));
    done = range.end;
  }
  parts.push_back(text.substr(done));
  const auto normalized = normalizer.ApplyToParts(parts);
  std::vector<TextRange> moved;
  if (!normalized.has_value()) return moved;
  size_t at = 0;
  for (size_t i = 0; i < normalized->size(); ++i) {
    const size_t end = at + (*normalized)[i].size();
    if (i % 2 == 1) moved.push_back({at, end});
    at = end;
  }
  return moved;
}

void Tokenizer::State::EncodePlain(std::string_view text, bool first, Job& job) const {
  if (text.empty()) return;
  std::string changed;
  if (spec.metaspace) text = changed = ReplaceAll(text, " ", kMetaspace);
  const std::string_view space = spec.metaspace ? kMetaspace : std::string_view(" ");
  const bool wants_space = spec.prefix_space == PrefixSpace::kAlways ||
                           (spec.prefix_space == PrefixSpace::kFirst && first);
  if (wants_space && !text.starts_with(space)) {
    changed = std::string(space).append(text);
    text = changed;
  }
  size_t begin = 0;
  for (const size_t end : pre_tokenizer.Split(text)) {
    if (job.Ended()) return;
    EncodePiece(text.substr(begin, end - begin), job);
    begin = end;
  }
}

void Tokenizer::State::EncodePiece(std::string_view piece, Job& job) const {
  const auto encode = [&](std::string_view part) {
    const auto with = [&](const auto& one) { one.Encode(part, job.tokens, job.limits.cancelled); };
    std::visit(with, encoder);
  };
  size_t begin = 0;
  if (cut_at_metaspace) {
    size_t at = piece.find(kMetaspace, 1);
    for (; at != std::string_view::npos; at = piece.find(kMetaspace, at + 1)) {
      if (piece.substr(0, at).ends_with(kMetaspace)) continue;
      if (job.Ended()) return;
      encode(piece.substr(begin, at - begin));
      begin = at;
    }
  }
  encode(piece.substr(begin));
}

StatusOr<Tokenizer> Tokenizer::Create(TokenizerSpec spec) {
  BATON_RETURN_IF_ERROR(CheckTokenizerSpec(spec));
  BATON_ASSIGN_OR_RETURN(PreTokenizer splitter, PreTokenizer::Create(spec.splits));
  return Tokenizer(std::make_shared<const State>(std::move(spec), std::move(splitter)));
}

std::vector<TokenId> Tokenizer::Encode(std::string_view text,
                                       EncodeOptions options,
                                       const EncodeLimits& limits) const {
  State::Job job{.trust = {.all = options.parse_special, .ranges = {}}, .limits = limits};
  if (options.add_special) job.tokens = state_->spec.prefix;
  if (IsValidUtf8(text)) {
    state_->EncodeText(text, job);
  } else {
    state_->EncodeText(ReplaceInvalidUtf8(text), job);
  }
  if (options.add_special) {
    job.tokens.insert(job.tokens.end(), state_->spec.suffix.begin(), state_->spec.suffix.end());
  }
  return std::move(job.tokens);
}

std::vector<TokenId> Tokenizer::EncodeSegments(std::span<const TextSegment> segments,
                                               bool add_special,
                                               const EncodeLimits& limits) const {
  std::string text;
  std::vector<TextRange> trusted;
  for (const TextSegment& segment : segments) {
    const size_t begin = text.size();
    text.append(ReplaceInvalidUtf8(segment.text));
    if (!segment.trusted || text.size() == begin) continue;
    if (!trusted.empty() && trusted.back().end == begin) {
      trusted.back().end = text.size();
    } else {
      trusted.push_back({begin, text.size()});
    }
  }
  State::Job job{.trust = {.all = false, .ranges = trusted}, .limits = limits};
  if (add_special) job.tokens = state_->spec.prefix;
  state_->EncodeText(text, job);
  if (add_special) {
    job.tokens.insert(job.tokens.end(), state_->spec.suffix.begin(), state_->spec.suffix.end());
  }
  return std::move(job.tokens);
}

std::string Tokenizer::Decode(std::span<const TokenId> tokens, bool skip_special) const {
  Detokenizer detokenizer(*this, {.skip_special = skip_special});
  std::string text;
  for (const TokenId token : tokens) text += detokenizer.Append(token);
  return text += detokenizer.Flush();
}

size_t Tokenizer::max_token_bytes() const {
  return state_->max_token_bytes;
}

size_t Tokenizer::vocab_size() const {
  return state_->spec.pieces.size();
}

bool Tokenizer::Contains(TokenId token) const {
  return token >= 0 && static_cast<size_t>(token) < vocab_size();
}

std::string_view Tokenizer::piece(TokenId token) const {
  BATON_CHECK(Contains(token), "token {} of a vocabulary of {}", token, vocab_size());
  return state_->spec.pieces[static_cast<size_t>(token)].bytes;
}

std::string_view Tokenizer::decoded_piece(TokenId token) const {
  const auto found = state_->decoded.find(token);
  return found == state_->decoded.end() ? piece(token) : std::string_view(found->second);
}

PieceKind Tokenizer::kind(TokenId token) const {
  BATON_CHECK(Contains(token), "token {} of a vocabulary of {}", token, vocab_size());
  return state_->spec.pieces[static_cast<size_t>(token)].kind;
}

bool Tokenizer::is_special(TokenId token) const {
  return Contains(token) && state_->special[static_cast<size_t>(token)];
}

std::optional<TokenId> Tokenizer::Find(std::string_view text) const {
  const auto it = state_->id_of_text.find(std::string(text));
  if (it == state_->id_of_text.end()) return std::nullopt;
  return it->second;
}

const TokenizerSpec& Tokenizer::spec() const {
  return state_->spec;
}

}  // namespace baton
