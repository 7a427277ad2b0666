#include "common/grammar/xgrammar/token_trie.h"

#include <algorithm>
#include <utility>

namespace baton {
namespace {

// Where a text stands within a character of a class.
enum class Place : uint8_t {
  kBetween,  // at the end of a character
  kOne,      // one continuation byte is missing
  kTwo,
  kThree,
  kE0,   // the next byte must be A0..BF
  kEd,   // 80..9F
  kF0,   // 90..BF
  kF4,   // 80..8F
  kNot,  // behind a byte that belongs to no character of the class
};

bool IsBetween(Place place) {
  return place == Place::kBetween || place == Place::kNot;
}

Place FirstByte(TextClass text_class, uint8_t byte) {
  if (byte < 0x80) return IsInClass(text_class, byte) ? Place::kBetween : Place::kNot;
  if (text_class != TextClass::kPlain) return Place::kNot;
  if (byte >= 0xC2 && byte <= 0xDF) return Place::kOne;
  if (byte == 0xE0) return Place::kE0;
  if (byte == 0xED) return Place::kEd;
  if (byte >= 0xE1 && byte <= 0xEF) return Place::kTwo;
  if (byte == 0xF0) return Place::kF0;
  if (byte >= 0xF1 && byte <= 0xF3) return Place::kThree;
  if (byte == 0xF4) return Place::kF4;
  return Place::kNot;
}

Place NextByte(TextClass text_class, Place place, uint8_t byte) {
  const auto within = [&](uint8_t low, uint8_t high, Place next) {
    return byte >= low && byte <= high ? next : Place::kNot;
  };
  switch (place) {
    case Place::kOne:
      return within(0x80, 0xBF, Place::kBetween);
    case Place::kTwo:
      return within(0x80, 0xBF, Place::kOne);
    case Place::kThree:
      return within(0x80, 0xBF, Place::kTwo);
    case Place::kE0:
      return within(0xA0, 0xBF, Place::kOne);
    case Place::kEd:
      return within(0x80, 0x9F, Place::kOne);
    case Place::kF0:
      return within(0x90, 0xBF, Place::kTwo);
    case Place::kF4:
      return within(0x80, 0x8F, Place::kTwo);
    default:
      return FirstByte(text_class, byte);
  }
}

int CharactersOf(std::string_view text) {
  const auto begins = [](char c) { return (static_cast<uint8_t>(c) & 0xC0) != 0x80; };
  return static_cast<int>(std::ranges::count_if(text, begins));
}

class Maker {
 public:
  explicit Maker(const std::vector<std::string>& texts) : texts_(texts) {
    trie_.numbers.resize(texts.size(), -1);
    for (size_t t = 0; t < texts.size(); ++t) {
      if (!texts[t].empty()) trie_.ids.push_back(static_cast<TokenId>(t));
    }
    std::ranges::sort(trie_.ids, [&](TokenId a, TokenId b) {
      return std::pair(text(a), a) < std::pair(text(b), b);
    });
  }

  TokenTrie Make() {
    AddNode(0);
    std::string_view before;
    for (int32_t token = 0; token < trie_.tokens(); ++token) {
      const TokenId id = trie_.ids[static_cast<size_t>(token)];
      const std::string_view now = text(id);
      const auto common =
          static_cast<size_t>(std::ranges::mismatch(before, now).in1 - before.begin());
      CloseTo(common + 1);
      tokens_ = token;
      for (const char c : now.substr(common)) AddNode(static_cast<uint8_t>(c));
      trie_.numbers[static_cast<size_t>(id)] = token;
      trie_.starts.push_back(static_cast<int32_t>(trie_.bytes.size()));
      trie_.bytes += now;
      trie_.longest = std::max(trie_.longest, now.size());
      own_nodes_.push_back(path_.back());
      before = now;
    }
    CloseTo(0);
    trie_.starts.push_back(static_cast<int32_t>(trie_.bytes.size()));
    trie_.first.push_back(trie_.tokens());
    for (const int32_t node : own_nodes_) {
      const auto behind = static_cast<size_t>(trie_.end[static_cast<size_t>(node)]);
      trie_.subtree.push_back(trie_.first[behind]);
    }
    for (const TextClass text_class : kAllTextClasses) FillClass(text_class);
    for (int32_t node = 1; node < trie_.nodes(); node = trie_.end[static_cast<size_t>(node)]) {
      trie_.of_root.push_back({node, trie_.byte[static_cast<size_t>(node)]});
    }
    return std::move(trie_);
  }

 private:
  std::string_view text(TokenId id) const { return texts_[static_cast<size_t>(id)]; }

  void AddNode(uint8_t byte) {
    parents_.push_back(path_.empty() ? 0 : path_.back());
    path_.push_back(trie_.nodes());
    trie_.byte.push_back(byte);
    trie_.end.push_back(0);
    trie_.first.push_back(tokens_);
  }

  // Ends the subtrees of the deepest open nodes, until `depth` are open.
  void CloseTo(size_t depth) {
    for (; path_.size() > depth; path_.pop_back()) {
      trie_.end[static_cast<size_t>(path_.back())] = trie_.nodes();
    }
  }

  void FillClass(TextClass text_class) {
    TokenTrie::Class& out = trie_.classes[static_cast<size_t>(text_class)];
    const size_t nodes = trie_.byte.size();
    out.tokens.resize((texts_.size() + 31) / 32);
    std::vector<Place> places = {Place::kBetween};
    std::vector<bool> within = {true};  // no byte of the text is outside of the class
    for (size_t node = 1; node < nodes; ++node) {
      const auto parent = static_cast<size_t>(parents_[node]);
      places.push_back(NextByte(text_class, places[parent], trie_.byte[node]));
      within.push_back(within[parent] && places.back() != Place::kNot);
    }
    // The largest number of characters below each node; -1 when there are others.
    std::vector<int> rest(nodes, 0);
    for (size_t node = nodes; node-- > 0;) {
      const bool own_token = trie_.first[node] < trie_.first[node + 1];
      if (own_token && !IsBetween(places[node])) rest[node] = -1;
      if (rest[node] > TokenTrie::Class::kMaxRest) rest[node] = -1;
      if (node == 0) break;
      int& above = rest[static_cast<size_t>(parents_[node])];
      const bool other = rest[node] < 0 || places[node] == Place::kNot;
      const int characters = rest[node] + (IsBetween(places[node]) ? 1 : 0);
      above = other || above < 0 ? -1 : std::max(above, characters);
    }
    for (size_t node = 0; node < nodes; ++node) {
      const bool known = rest[node] >= 0 && IsBetween(places[node]);
      out.rest.push_back(known ? static_cast<uint8_t>(rest[node]) : TokenTrie::Class::kOther);
      out.whole.push_back(within[node] && places[node] == Place::kBetween);
    }
    FillTokens(out);
  }

  void FillTokens(TokenTrie::Class& out) {
    std::vector<std::pair<int, TokenId>> tokens;  // by their characters
    for (int32_t token = 0; token < trie_.tokens(); ++token) {
      if (!out.whole[static_cast<size_t>(own_nodes_[static_cast<size_t>(token)])]) continue;
      const TokenId id = trie_.ids[static_cast<size_t>(token)];
      out.tokens[static_cast<size_t>(id) / 32] |= uint32_t{1} << id % 32;
      tokens.emplace_back(CharactersOf(trie_.text(token)), id);
    }
    std::ranges::sort(tokens);
    if (!tokens.empty()) out.longest = tokens.back().first;
    out.up_to.resize(static_cast<size_t>(out.longest) + 1);
    for (const auto& [characters, id] : tokens) {
      out.by_length.push_back(id);
      out.up_to[static_cast<size_t>(characters)] = out.by_length.size();
    }
    for (size_t n = 1; n < out.up_to.size(); ++n) {
      out.up_to[n] = std::max(out.up_to[n], out.up_to[n - 1]);
    }
  }

  const std::vector<std::string>& texts_;
  TokenTrie trie_;
  int32_t tokens_ = 0;              // before the one that is added
  std::vector<int32_t> path_;       // the nodes whose subtrees are not complete
  std::vector<int32_t> parents_;    // of each node
  std::vector<int32_t> own_nodes_;  // of each token
};

}  // namespace

int32_t TokenTrie::ChildOf(int32_t node, uint8_t next) const {
  if (node == 0) {
    const auto found = std::ranges::find(of_root, next, &Child::byte);
    return found == of_root.end() ? -1 : found->node;
  }
  for (int32_t child = node + 1; child < end[static_cast<size_t>(node)];
       child = end[static_cast<size_t>(child)]) {
    if (byte[static_cast<size_t>(child)] == next) return child;
  }
  return -1;
}

std::vector<TokenId> TokenTrie::Spell(std::string_view text, size_t most) const {
  std::vector<TokenId> spelled;
  while (!text.empty() && spelled.size() < most) {
    int32_t longest_token = -1;
    int32_t node = 0;
    for (size_t size = 1; size <= text.size(); ++size) {
      node = ChildOf(node, static_cast<uint8_t>(text[size - 1]));
      if (node < 0) break;
      const int32_t token = first[static_cast<size_t>(node)];
      if (this->text(token).size() == size) longest_token = token;
    }
    if (longest_token < 0) break;
    spelled.push_back(ids[static_cast<size_t>(longest_token)]);
    text.remove_prefix(this->text(longest_token).size());
  }
  return spelled;
}

TokenTrie TokenTrie::Make(const std::vector<std::string>& texts) {
  return Maker(texts).Make();
}

}  // namespace baton
