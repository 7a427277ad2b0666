#include "common/grammar/regex/regex_narrow.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

namespace baton {
namespace {

using Kind = RegexNode::Kind;

constexpr int64_t kNoLimit = RegexNode::kNoLimit;

bool Exceeds(int64_t length, int64_t most) {
  return length == kNoLimit || length > most;
}

bool Varies(const RegexNode& node) {
  const RegexLengths lengths = LengthsOf(node);
  return lengths.least != lengths.most;
}

int64_t DividedUp(int64_t number, int64_t by) {
  return (number + by - 1) / by;
}

// About as many repetitions as each of them may have characters, if the element has no bound.
void NarrowRepeatToMost(RegexNode& repeat, int64_t most) {
  const RegexLengths element = LengthsOf(repeat.parts[0]);
  const int64_t shortest = std::max<int64_t>(element.least, 1);
  if (element.most == kNoLimit || element.most * std::max<int64_t>(repeat.least, 1) > most) {
    const auto root = static_cast<int64_t>(std::sqrt(static_cast<double>(most / shortest)));
    int64_t count = std::max<int64_t>(repeat.least, 1);
    if (element.most == kNoLimit) count = std::max(count, root);
    if (repeat.most != kNoLimit) count = std::min(count, std::max<int64_t>(repeat.most, 1));
    if (most / count < element.least) {
      repeat.most = 0;  // no repetition is so short, so there may be none
      return;
    }
    repeat.parts[0] = NarrowedToMost(std::move(repeat.parts[0]), most / count);
  }
  const int64_t longest = LengthsOf(repeat.parts[0]).most;
  if (longest <= 0) return;
  const int64_t count = most / longest;
  repeat.most = repeat.most == kNoLimit ? count : std::min(repeat.most, count);
}

void NarrowRepeatToLeast(RegexNode& repeat, int64_t least) {
  const RegexLengths element = LengthsOf(repeat.parts[0]);
  if (element.least > 0) {
    const int64_t count = DividedUp(least, element.least);
    if (repeat.most == kNoLimit || count <= repeat.most) {
      repeat.least = std::max(repeat.least, count);
      return;
    }
  }
  // Longer elements, as many as there may be, or one if it may have any length.
  int64_t count = repeat.most;
  if (count == kNoLimit) {
    count = element.most == kNoLimit ? 1 : DividedUp(least, std::max<int64_t>(element.most, 1));
  }
  repeat.least = std::max({repeat.least, count, int64_t{1}});
  repeat.parts[0] = NarrowedToLeast(std::move(repeat.parts[0]), DividedUp(least, repeat.least));
}

}  // namespace

RegexNode NarrowedToMost(RegexNode node, int64_t most) {
  if (!Exceeds(LengthsOf(node).most, most)) return node;
  if (node.kind == Kind::kChoice) {
    std::erase_if(node.parts, [&](const RegexNode& part) { return LengthsOf(part).least > most; });
    for (RegexNode& part : node.parts) part = NarrowedToMost(std::move(part), most);
  } else if (node.kind == Kind::kSequence) {
    int64_t spare = most - LengthsOf(node).least;
    int64_t varying = std::ranges::count_if(node.parts, Varies);
    for (RegexNode& part : node.parts) {
      if (!Varies(part)) continue;
      const int64_t least = LengthsOf(part).least;
      part = NarrowedToMost(std::move(part), least + spare / varying);
      spare -= LengthsOf(part).most - least;
      --varying;
    }
  } else if (node.kind == Kind::kRepeat) {
    NarrowRepeatToMost(node, most);
  }
  return node;
}

RegexNode NarrowedToLeast(RegexNode node, int64_t least) {
  if (LengthsOf(node).least >= least) return node;
  if (node.kind == Kind::kChoice) {
    std::erase_if(node.parts, [&](const RegexNode& part) {
      const int64_t longest = LengthsOf(part).most;
      return longest != kNoLimit && longest < least;
    });
    for (RegexNode& part : node.parts) part = NarrowedToLeast(std::move(part), least);
  } else if (node.kind == Kind::kSequence) {
    int64_t missing = least - LengthsOf(node).least;
    for (RegexNode& part : node.parts) {
      if (missing <= 0) break;
      const RegexLengths lengths = LengthsOf(part);
      const int64_t more = lengths.most == kNoLimit ? missing : lengths.most - lengths.least;
      part = NarrowedToLeast(std::move(part), lengths.least + std::min(more, missing));
      missing -= LengthsOf(part).least - lengths.least;
    }
  } else if (node.kind == Kind::kRepeat) {
    NarrowRepeatToLeast(node, least);
  }
  return node;
}

}  // namespace baton
