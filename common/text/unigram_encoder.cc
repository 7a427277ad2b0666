#include "common/text/unigram_encoder.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "common/text/utf8.h"

namespace baton {
namespace {

constexpr double kUnknownPenalty = 10.0;
// Sums in float32 begin again from 0 where they become larger, as in SentencePiece.
constexpr double kLargestFloatSum = 100'000;
// The score of a user-defined piece: higher than that of any normal piece, which is the logarithm
// of a probability.
float UserDefinedScore(size_t bytes) {
  return static_cast<float>(0.1 * static_cast<double>(bytes - 1));
}

bool IsContinuation(char c) {
  return (static_cast<uint8_t>(c) & 0xC0) == 0x80;
}

}  // namespace

UnigramEncoder::UnigramEncoder(const TokenizerSpec& spec)
    : byte_fallback_(spec.byte_fallback),
      fuse_unknown_(spec.fuse_unknown),
      float_sums_(spec.float_sums),
      unknown_(spec.unknown),
      byte_tokens_(256, kUnknownCharacter),
      nodes_(1) {
  double lowest = std::numeric_limits<double>::max();
  for (size_t i = 0; i < spec.pieces.size(); ++i) {
    if (spec.pieces[i].kind == PieceKind::kNormal) lowest = std::min(lowest, spec.scores[i]);
  }
  unknown_score_ = lowest - kUnknownPenalty;
  for (size_t i = 0; i < spec.pieces.size(); ++i) {
    const Piece& piece = spec.pieces[i];
    const auto token = static_cast<TokenId>(i);
    if (piece.kind == PieceKind::kByte) {
      byte_tokens_[static_cast<uint8_t>(piece.bytes[0])] = token;
    } else if (piece.kind == PieceKind::kNormal) {
      Insert(piece.bytes, token, spec.scores[i]);
    } else if (piece.kind == PieceKind::kUserDefined && !piece.bytes.empty()) {
      Insert(piece.bytes, token, UserDefinedScore(piece.bytes.size()));
    }
  }
}

void UnigramEncoder::Insert(std::string_view piece, TokenId token, double score) {
  uint32_t node = 0;
  for (const char c : piece) {
    const uint64_t key = uint64_t{node} << 8 | static_cast<uint8_t>(c);
    const auto [child, added] = children_.try_emplace(key, static_cast<uint32_t>(nodes_.size()));
    if (added) nodes_.emplace_back();
    node = child->second;
  }
  if (node != 0 && nodes_[node].token == kUnknownCharacter) nodes_[node] = {token, score};
}

void UnigramEncoder::Encode(std::string_view text,
                            std::vector<TokenId>& out,
                            const Cancelled& cancelled) const {
  while (text.size() > kWindow) {
    size_t end = kWindow;
    while (IsContinuation(text[end])) --end;
    EncodeWindow(text.substr(0, end), out, cancelled);
    text.remove_prefix(end);
  }
  EncodeWindow(text, out, cancelled);
}

void UnigramEncoder::EncodeWindow(std::string_view text,
                                  std::vector<TokenId>& out,
                                  const Cancelled& cancelled) const {
  constexpr size_t kBetweenCalls = size_t{1} << 16;
  std::vector<Step> steps(text.size() + 1);
  size_t reached = 0;  // the last position to which there is a way
  for (size_t at = 0; at < text.size(); at += DecodeUtf8(text, at).length) {
    if (cancelled && at / kBetweenCalls != (at + 4) / kBetweenCalls && cancelled()) return;
    if (float_sums_ && std::abs(steps[at].score) > kLargestFloatSum) {
      const double offset = steps[at].score;
      for (size_t i = at; i <= reached; ++i) steps[i].score = Sum(steps[i].score, -offset);
    }
    reached = std::max(reached, AddPieces(text, at, steps));
  }
  Append(text, steps, out);
}

double UnigramEncoder::Sum(double a, double b) const {
  return float_sums_ ? static_cast<float>(a) + static_cast<float>(b) : a + b;
}

// Offers the pieces that begin at `at`, or the character there, to the positions where they end.
// Returns the last one.
size_t UnigramEncoder::AddPieces(std::string_view text, size_t at, std::vector<Step>& steps) const {
  const double before = steps[at].score;
  const auto offer = [&](size_t end, TokenId token, double score) {
    Step& step = steps[end];
    const double sum = Sum(before, score);
    if (step.begin != SIZE_MAX && sum <= step.score) return;
    step = {sum, at, token};
  };
  const size_t character = at + DecodeUtf8(text, at).length;
  size_t last = character;
  bool known = false;  // the character is a piece
  uint32_t node = 0;
  for (size_t end = at; end < text.size();) {
    const auto child = children_.find(uint64_t{node} << 8 | static_cast<uint8_t>(text[end]));
    if (child == children_.end()) break;
    node = child->second;
    ++end;
    if (nodes_[node].token == kUnknownCharacter) continue;
    offer(end, nodes_[node].token, nodes_[node].score);
    last = std::max(last, end);
    known = known || end == character;
  }
  if (!known) offer(character, kUnknownCharacter, unknown_score_);
  return last;
}

void UnigramEncoder::Append(std::string_view text,
                            const std::vector<Step>& steps,
                            std::vector<TokenId>& out) const {
  std::vector<size_t> ends;
  for (size_t end = text.size(); end > 0; end = steps[end].begin) ends.push_back(end);
  bool follows = false;  // an unknown character
  for (auto end = ends.rbegin(); end != ends.rend(); ++end) {
    const Step& step = steps[*end];
    if (step.token != kUnknownCharacter) {
      out.push_back(step.token);
    } else {
      AppendUnknown(text.substr(step.begin, *end - step.begin), follows, out);
    }
    follows = step.token == kUnknownCharacter;
  }
}

void UnigramEncoder::AppendUnknown(std::string_view text,
                                   bool follows,
                                   std::vector<TokenId>& out) const {
  const auto token_of = [&](char c) { return byte_tokens_[static_cast<uint8_t>(c)]; };
  if (byte_fallback_ &&
      std::ranges::all_of(text, [&](char c) { return token_of(c) != kUnknownCharacter; })) {
    for (const char c : text) out.push_back(token_of(c));
  } else if (unknown_.has_value() && !(follows && fuse_unknown_)) {
    out.push_back(*unknown_);
  }
}

}  // namespace baton
