#include "common/grammar/regex/regex_tree.h"

#include <algorithm>

#include "common/text/utf8.h"

namespace baton {
namespace {

using Kind = RegexNode::Kind;

constexpr int64_t kMaxSize = int64_t{1} << 32;
constexpr int64_t kNoLimit = RegexNode::kNoLimit;

// Positions in a text: set[i] stands for the place before character i.
using Positions = std::vector<bool>;

bool Any(const Positions& positions) {
  return std::ranges::find(positions, true) != positions.end();
}

// Where a match of `node` may end that begins at one of `from`.
Positions After(const RegexNode& node, const std::vector<char32_t>& text, Positions from) {
  switch (node.kind) {
    case Kind::kClass: {
      Positions to(from.size());
      for (size_t i = 0; i < text.size(); ++i) {
        to[i + 1] = from[i] && node.characters.Has(text[i]);
      }
      return to;
    }
    case Kind::kSequence:
      for (const RegexNode& part : node.parts) from = After(part, text, std::move(from));
      return from;
    case Kind::kChoice: {
      Positions to(from.size());
      for (const RegexNode& part : node.parts) {
        const Positions one = After(part, text, from);
        for (size_t i = 0; i < to.size(); ++i) to[i] = to[i] || one[i];
      }
      return to;
    }
    case Kind::kRepeat:
      break;
    default:
      return from;
  }
  Positions all(from.size());
  for (int64_t times = 0; node.most == kNoLimit || times <= node.most; ++times) {
    if (times >= node.least) {
      Positions more = all;
      for (size_t i = 0; i < all.size(); ++i) more[i] = all[i] || from[i];
      if (times > node.least && more == all) break;
      all = std::move(more);
    }
    Positions next = After(node.parts[0], text, from);
    if (!Any(next)) break;
    // What changes nothing changes nothing later, either.
    if (next == from && times < node.least) times = node.least - 1;
    from = std::move(next);
  }
  return all;
}

int64_t Plus(int64_t a, int64_t b) {
  return a == kNoLimit || b == kNoLimit ? kNoLimit : std::min(a + b, kMaxSize);
}

int64_t Times(int64_t a, int64_t b) {
  if (a == 0 || b == 0) return 0;
  if (a == kNoLimit || b == kNoLimit) return kNoLimit;
  return a > kMaxSize / b ? kMaxSize : a * b;
}

}  // namespace

RegexNode ClassNode(CodePoints characters) {
  return {.kind = Kind::kClass, .characters = std::move(characters)};
}

RegexNode SequenceNode(std::vector<RegexNode> parts) {
  if (parts.size() == 1) return std::move(parts[0]);
  return {.kind = Kind::kSequence, .parts = std::move(parts)};
}

RegexNode ChoiceNode(std::vector<RegexNode> parts) {
  if (parts.size() == 1) return std::move(parts[0]);
  return {.kind = Kind::kChoice, .parts = std::move(parts)};
}

RegexNode RepeatNode(RegexNode part, int64_t least, int64_t most) {
  RegexNode node = {.kind = Kind::kRepeat, .least = least, .most = most};
  node.parts.push_back(std::move(part));
  return node;
}

RegexLengths LengthsOf(const RegexNode& node) {
  if (node.kind == Kind::kClass) return {1, 1};
  if (node.kind == Kind::kRepeat) {
    const RegexLengths part = LengthsOf(node.parts[0]);
    return {Times(part.least, node.least), Times(part.most, node.most)};
  }
  RegexLengths all;
  for (size_t i = 0; i < node.parts.size(); ++i) {
    const RegexLengths part = LengthsOf(node.parts[i]);
    if (node.kind == Kind::kSequence) {
      all = {Plus(all.least, part.least), Plus(all.most, part.most)};
    } else if (i == 0) {
      all = part;
    } else {
      const bool limited = all.most != kNoLimit && part.most != kNoLimit;
      all.least = std::min(all.least, part.least);
      all.most = limited ? std::max(all.most, part.most) : kNoLimit;
    }
  }
  return all;
}

int64_t SizeOf(const RegexNode& node) {
  if (node.kind == Kind::kClass) return 1;
  int64_t size = 0;
  for (const RegexNode& part : node.parts) size = Plus(size, SizeOf(part));
  if (node.kind != Kind::kRepeat) return size;
  return Times(size, std::max({node.least, node.most, int64_t{1}}));
}

bool Matches(const RegexNode& node, std::string_view text) {
  std::vector<char32_t> characters;
  for (size_t at = 0; at < text.size();) {
    const CodePoint point = DecodeUtf8(text, at);
    characters.push_back(point.value);
    at += point.length;
  }
  Positions begin(characters.size() + 1);
  begin[0] = true;
  return After(node, characters, std::move(begin)).back();
}

}  // namespace baton
