#include "common/text/bpe_encoder.h"

#include <algorithm>
#include <functional>
#include <limits>

#include "common/text/utf8.h"

namespace baton {
namespace {

constexpr size_t kShortPiece = 48;  // symbols; up to this length, scanning is the fastest
// A longer piece is merged in windows of this many symbols, which bounds memory.
constexpr size_t kLongestMerge = size_t{1} << 24;
constexpr TokenId kNone = PieceTable::kNone;

uint64_t PairKey(TokenId left, TokenId right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

// Two neighbouring symbols that can be joined. Outdated when the symbols at `pos` have changed.
struct MergeCandidate {
  uint32_t pos;
  TokenId left, right, result;
  bool operator>(const MergeCandidate& other) const { return pos > other.pos; }
};

// Returns candidates ordered by rank, then by position. Each rank has a list, which is sorted when
// its first candidate is popped; mostly the list is already sorted, because merges go from left to
// right. Candidates that are pushed to a rank later than that go into a separate heap.
class MergeQueue final {
 public:
  bool empty() const { return ranks_.empty(); }

  void Push(uint32_t rank, const MergeCandidate& candidate) {
    const auto [it, added] = lists_.try_emplace(rank);
    if (added) {
      ranks_.push_back(rank);
      std::push_heap(ranks_.begin(), ranks_.end(), std::greater<>());
    }
    List& list = it->second;
    std::vector<MergeCandidate>& to = list.sorted ? list.heap : list.items;
    to.push_back(candidate);
    if (list.sorted) std::push_heap(to.begin(), to.end(), std::greater<>());
  }

  MergeCandidate Pop() {
    const auto it = lists_.find(ranks_.front());
    List& list = it->second;
    if (!list.sorted) Sort(list);
    const bool from_heap = !list.heap.empty() &&
                           (list.done == list.items.size() || list.items[list.done] > list.heap[0]);
    MergeCandidate first;
    if (from_heap) {
      std::pop_heap(list.heap.begin(), list.heap.end(), std::greater<>());
      first = list.heap.back();
      list.heap.pop_back();
    } else {
      first = list.items[list.done++];
    }
    if (list.done == list.items.size() && list.heap.empty()) {
      lists_.erase(it);
      std::pop_heap(ranks_.begin(), ranks_.end(), std::greater<>());
      ranks_.pop_back();
    }
    return first;
  }

 private:
  struct List {
    std::vector<MergeCandidate> items;
    size_t done = 0;                   // number of items that were popped
    bool sorted = false;               // `items` is sorted; later candidates go to `heap`
    std::vector<MergeCandidate> heap;  // a heap
  };

  static void Sort(List& list) {
    list.sorted = true;
    const auto after = [](const MergeCandidate& a, const MergeCandidate& b) { return b > a; };
    if (!std::is_sorted(list.items.begin(), list.items.end(), after)) {
      std::sort(list.items.begin(), list.items.end(), after);
    }
  }

  absl::flat_hash_map<uint32_t, List> lists_;  // by rank; no list is empty
  std::vector<uint32_t> ranks_;                // the keys of lists_, a heap with the lowest on top
};

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
    // Added tokens are left out: unless merging makes them, only Tokenizer recognises them.
    const bool usable = piece.kind == PieceKind::kNormal || piece.kind == PieceKind::kUnused;
    if (!usable || piece.bytes.empty()) continue;
    const auto id = static_cast<TokenId>(i);
    if (!spec.ignore_merges) {
      tokens.clear();
      EncodeByMerging(piece.bytes, tokens, nullptr);
      if (tokens.size() != 1 || tokens[0] != id) continue;
    }
    whole_pieces_.Insert(piece.bytes, id);
  }
}

void BpeEncoder::Encode(std::string_view piece,
                        std::vector<TokenId>& out,
                        const Cancelled& cancelled) const {
  if (const TokenId whole = whole_pieces_.Find(piece); whole != kNone) {
    out.push_back(whole);
  } else {
    EncodeByMerging(piece, out, cancelled);
  }
}

void BpeEncoder::EncodeByMerging(std::string_view piece,
                                 std::vector<TokenId>& out,
                                 const Cancelled& cancelled) const {
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
    MergeLong(window, cancelled);
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

void BpeEncoder::MergeLong(std::vector<TokenId>& symbols, const Cancelled& cancelled) const {
  constexpr uint32_t kEnd = UINT32_MAX;
  constexpr uint32_t kMergesBetween = 1 << 16;  // merges between two calls of `cancelled`
  const auto count = static_cast<uint32_t>(symbols.size());
  std::vector<uint32_t> next(count), previous(count);
  MergeQueue queue;
  const auto consider = [&](uint32_t left, uint32_t right) {
    const Target target = Find(symbols[left], symbols[right]);
    if (target.rank == UINT32_MAX) return;
    queue.Push(target.rank, {left, symbols[left], symbols[right], target.result});
  };
  for (uint32_t i = 0; i < count; ++i) {
    next[i] = i + 1 < count ? i + 1 : kEnd;
    previous[i] = i > 0 ? i - 1 : kEnd;
    if (i > 0) consider(i - 1, i);
  }
  for (uint32_t turn = 1; !queue.empty(); ++turn) {
    if (turn % kMergesBetween == 0 && cancelled && cancelled()) break;
    const MergeCandidate top = queue.Pop();
    const uint32_t right = next[top.pos];
    if (symbols[top.pos] != top.left || right == kEnd || symbols[right] != top.right) continue;
    symbols[top.pos] = top.result;
    symbols[right] = kNone;
    next[top.pos] = next[right];
    if (next[right] != kEnd) previous[next[right]] = top.pos;
    if (previous[top.pos] != kEnd) consider(previous[top.pos], top.pos);
    if (next[top.pos] != kEnd) consider(top.pos, next[top.pos]);
  }
  std::erase(symbols, kNone);
}

}  // namespace baton
