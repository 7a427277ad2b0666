#include "common/text/bpe_encoder.h"

#include <algorithm>
#include <limits>

#include "common/text/utf8.h"

namespace baton {
namespace {

constexpr size_t kShortPiece = 48;  // symbols; up to here scanning beats a heap
// A longer stretch is merged in windows of this many symbols, which bounds memory.
constexpr size_t kLongestMerge = size_t{1} << 24;
constexpr TokenId kNone = PieceTable::kNone;

uint64_t PairKey(TokenId left, TokenId right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

bool ComesFromText(PieceKind kind) {
  return kind == PieceKind::kNormal || kind == PieceKind::kUserDefined ||
         kind == PieceKind::kUnused;
}

}  // namespace

BpeEncoder::BpeEncoder(const TokenizerSpec& spec)
    : alphabet_(spec.alphabet),
      byte_fallback_(spec.byte_fallback),
      fuse_unknown_(spec.fuse_unknown),
      unknown_(spec.unknown),
      pieces_(spec.pieces.size()),
      whole_pieces_(spec.pieces.size()) {
  byte_tokens_.fill(kNone);
  const PieceKind byte_kind =
      alphabet_ == BpeAlphabet::kBytes ? PieceKind::kNormal : PieceKind::kByte;
  for (size_t i = 0; i < spec.pieces.size(); ++i) {
    const Piece& piece = spec.pieces[i];
    const auto id = static_cast<TokenId>(i);
    if (ComesFromText(piece.kind) && !piece.bytes.empty()) pieces_.Insert(piece.bytes, id);
    if (piece.kind != byte_kind || piece.bytes.size() != 1) continue;
    TokenId& token = byte_tokens_[static_cast<uint8_t>(piece.bytes[0])];
    if (token == kNone) token = id;
  }
  merges_.reserve(spec.merges.size());
  for (const Merge& merge : spec.merges) {
    merges_.try_emplace(PairKey(merge.left, merge.right), Target{merge.rank, merge.result});
  }
  FindWholePieces(spec);
}

void BpeEncoder::FindWholePieces(const TokenizerSpec& spec) {
  std::vector<TokenId> tokens;
  for (size_t i = 0; i < spec.pieces.size(); ++i) {
    const Piece& piece = spec.pieces[i];
    // An added token that merging does not make stands in text only where Tokenizer looks for it.
    const bool usable = piece.kind == PieceKind::kNormal || piece.kind == PieceKind::kUnused;
    if (!usable || piece.bytes.empty()) continue;
    const auto id = static_cast<TokenId>(i);
    if (!spec.ignore_merges) {
      tokens.clear();
      EncodeByMerging(piece.bytes, tokens);
      if (tokens.size() != 1 || tokens[0] != id) continue;
    }
    whole_pieces_.Insert(piece.bytes, id);
  }
}

void BpeEncoder::Encode(std::string_view piece, std::vector<TokenId>& out) const {
  if (const TokenId whole = whole_pieces_.Find(piece); whole != kNone) {
    out.push_back(whole);
  } else {
    EncodeByMerging(piece, out);
  }
}

void BpeEncoder::EncodeByMerging(std::string_view piece, std::vector<TokenId>& out) const {
  thread_local std::vector<TokenId> symbols;
  symbols.clear();
  AppendSymbols(piece, symbols);
  if (symbols.size() <= kShortPiece) {
    MergeShort(symbols);
    out.insert(out.end(), symbols.begin(), symbols.end());
    return;
  }
  const std::vector<TokenId> all = std::move(symbols);
  symbols = {};
  for (size_t begin = 0; begin < all.size(); begin += kLongestMerge) {
    const size_t end = std::min(all.size(), begin + kLongestMerge);
    std::vector<TokenId> window(all.begin() + static_cast<ptrdiff_t>(begin),
                                all.begin() + static_cast<ptrdiff_t>(end));
    MergeLong(window);
    out.insert(out.end(), window.begin(), window.end());
  }
}

void BpeEncoder::AppendSymbols(std::string_view piece, std::vector<TokenId>& symbols) const {
  if (alphabet_ == BpeAlphabet::kBytes) {
    for (const char& byte : piece) {
      const TokenId token = byte_tokens_[static_cast<uint8_t>(byte)];
      if (token != kNone) {
        symbols.push_back(token);
      } else {
        AppendUnknown({&byte, 1}, symbols);
      }
    }
    return;
  }
  for (size_t pos = 0; pos < piece.size();) {
    const std::string_view character = piece.substr(pos, DecodeUtf8(piece, pos).length);
    const TokenId token = pieces_.Find(character);
    if (token != kNone) {
      symbols.push_back(token);
    } else {
      AppendUnknown(character, symbols);
    }
    pos += character.size();
  }
}

void BpeEncoder::AppendUnknown(std::string_view character, std::vector<TokenId>& symbols) const {
  const auto token_of = [this](char byte) { return byte_tokens_[static_cast<uint8_t>(byte)]; };
  if (byte_fallback_ && std::all_of(character.begin(), character.end(), [&](char byte) {
        return token_of(byte) != kNone;
      })) {
    for (const char byte : character) symbols.push_back(token_of(byte));
    return;
  }
  if (!unknown_) return;
  if (fuse_unknown_ && !symbols.empty() && symbols.back() == *unknown_) return;
  symbols.push_back(*unknown_);
}

BpeEncoder::Target BpeEncoder::Find(TokenId left, TokenId right) const {
  const auto it = merges_.find(PairKey(left, right));
  return it == merges_.end() ? Target{} : it->second;
}

void BpeEncoder::MergeShort(std::vector<TokenId>& symbols) const {
  Target targets[kShortPiece];  // targets[i] joins symbols i and i + 1
  size_t count = symbols.size();
  for (size_t i = 0; i + 1 < count; ++i) targets[i] = Find(symbols[i], symbols[i + 1]);
  while (count > 1) {
    const auto* best =
        std::min_element(targets, targets + count - 1, [](const Target& a, const Target& b) {
          return a.rank < b.rank;
        });
    if (best->rank == UINT32_MAX) break;
    const auto at = static_cast<size_t>(best - targets);
    symbols[at] = best->result;
    std::copy(symbols.begin() + static_cast<ptrdiff_t>(at) + 2,
              symbols.begin() + static_cast<ptrdiff_t>(count),
              symbols.begin() + static_cast<ptrdiff_t>(at) + 1);
    std::copy(targets + at + 1, targets + count - 1, targets + at);
    --count;
    if (at > 0) targets[at - 1] = Find(symbols[at - 1], symbols[at]);
    if (at + 1 < count) targets[at] = Find(symbols[at], symbols[at + 1]);
  }
  symbols.resize(count);
}

void BpeEncoder::MergeLong(std::vector<TokenId>& symbols) const {
  constexpr uint32_t kEnd = UINT32_MAX;
  struct Candidate {
    uint32_t rank;
    uint32_t pos;
    TokenId left, right;  // outdated when the symbols there are no longer these
    bool operator<(const Candidate& other) const {  // std's heap has the greatest on top
      return rank != other.rank ? rank > other.rank : pos > other.pos;
    }
  };
  const auto count = static_cast<uint32_t>(symbols.size());
  std::vector<uint32_t> next(count), previous(count);
  std::vector<Candidate> heap;
  heap.reserve(count);
  const auto consider = [&](uint32_t left, uint32_t right) {
    const Target target = Find(symbols[left], symbols[right]);
    if (target.rank == UINT32_MAX) return false;
    heap.push_back({target.rank, left, symbols[left], symbols[right]});
    return true;
  };
  for (uint32_t i = 0; i < count; ++i) {
    next[i] = i + 1 < count ? i + 1 : kEnd;
    previous[i] = i > 0 ? i - 1 : kEnd;
    if (i > 0) consider(i - 1, i);
  }
  std::make_heap(heap.begin(), heap.end());
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end());
    const Candidate top = heap.back();
    heap.pop_back();
    const uint32_t right = next[top.pos];
    if (symbols[top.pos] != top.left || right == kEnd || symbols[right] != top.right) continue;
    symbols[top.pos] = Find(top.left, top.right).result;
    symbols[right] = kNone;
    next[top.pos] = next[right];
    if (next[right] != kEnd) previous[next[right]] = top.pos;
    const auto push = [&](uint32_t a, uint32_t b) {
      if (consider(a, b)) std::push_heap(heap.begin(), heap.end());
    };
    if (previous[top.pos] != kEnd) push(previous[top.pos], top.pos);
    if (next[top.pos] != kEnd) push(top.pos, next[top.pos]);
  }
  std::erase(symbols, kNone);
}

}  // namespace baton
