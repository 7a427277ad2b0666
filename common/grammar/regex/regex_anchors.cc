#include "common/grammar/regex/regex_anchors.h"

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

#include "common/grammar/regex/regex_narrow.h"

namespace baton {
namespace {

using Kind = RegexNode::Kind;
using Parts = std::vector<RegexNode>;

constexpr int64_t kNoLimit = RegexNode::kNoLimit;
// The parts that are copied for alternatives with anchors, which are multiplied where several stand
// side by side.
constexpr int64_t kMaxCopied = 100'000;

bool HasAnchor(const RegexNode& node) {
  if (node.kind == Kind::kBegin || node.kind == Kind::kEnd) return true;
  return std::ranges::any_of(node.parts, HasAnchor);
}

int64_t CountOf(const Parts& parts) {
  int64_t count = 0;
  for (const RegexNode& part : parts) count += 1 + CountOf(part.parts);
  return count;
}

bool MayBeEmpty(const RegexNode& node) {
  return LengthsOf(node).least == 0;
}

class AnchorReader {
 public:
  explicit AnchorReader(std::string_view what) : what_(what) {}

  // `open_begin`: any characters may precede the parts; `open_end`: follow them.
  StatusOr<RegexNode> Read(Parts parts, bool open_begin, bool open_end) {
    while (!parts.empty() && (Is(parts[0], Kind::kBegin) || Is(parts[0], Kind::kSequence))) {
      const auto other =
          std::ranges::find_if_not(parts, [](const auto& one) { return Is(one, Kind::kBegin); });
      open_begin = open_begin && other == parts.begin();
      parts.erase(parts.begin(), other);
      if (!parts.empty()) Flatten(parts, 0);
    }
    while (!parts.empty() && (Is(parts.back(), Kind::kEnd) || Is(parts.back(), Kind::kSequence))) {
      open_end = open_end && !Is(parts.back(), Kind::kEnd);
      if (Is(parts.back(), Kind::kEnd)) {
        parts.pop_back();
      } else {
        Flatten(parts, parts.size() - 1);
      }
    }
    for (const size_t at : {size_t{0}, parts.size() - 1}) {
      if (at >= parts.size() || !Is(parts[at], Kind::kChoice) || !HasAnchor(parts[at])) continue;
      return Divide(std::move(parts), at, open_begin, open_end);
    }
    if (std::ranges::any_of(parts, HasAnchor)) {
      return InvalidArgument(
          "{} has ^ or $ in a place that is neither the begin nor the end of it or of an "
          "alternative; this is not supported",
          what_);
    }
    return Opened(std::move(parts), open_begin, open_end);
  }

 private:
  static bool Is(const RegexNode& node, Kind kind) { return node.kind == kind; }

  // Replaces a sequence by its parts.
  static void Flatten(Parts& parts, size_t at) {
    if (!Is(parts[at], Kind::kSequence)) return;
    Parts inside = std::move(parts[at].parts);
    const auto place = parts.erase(parts.begin() + static_cast<int64_t>(at));
    parts.insert(place, std::move_iterator(inside.begin()), std::move_iterator(inside.end()));
  }

  // Alternatives of the whole instead of alternatives of one part.
  StatusOr<RegexNode> Divide(Parts parts, size_t at, bool open_begin, bool open_end) {
    Parts options;
    Parts alternatives = std::move(parts[at].parts);
    parts[at].parts.clear();
    for (RegexNode& alternative : alternatives) {
      copied_ += CountOf(parts);
      if (copied_ > kMaxCopied) {
        return InvalidArgument("{} has too many alternatives with anchors", what_);
      }
      Parts one = parts;
      one[at] = std::move(alternative);
      BATON_ASSIGN_OR_RETURN(RegexNode read, Read(std::move(one), open_begin, open_end));
      options.push_back(std::move(read));
    }
    return ChoiceNode(std::move(options));
  }

  static RegexNode Anything() { return RepeatNode(ClassNode(CodePoints::All()), 0, kNoLimit); }

  // Beside any characters, repetitions beyond the least ones make no difference.
  static RegexNode Opened(Parts parts, bool open_begin, bool open_end) {
    const auto shorten = [](RegexNode& node) {
      if (Is(node, Kind::kRepeat)) node.most = node.least;
    };
    if (open_begin) parts.erase(parts.begin(), std::ranges::find_if_not(parts, MayBeEmpty));
    while (open_end && !parts.empty() && MayBeEmpty(parts.back())) parts.pop_back();
    if (open_begin && !parts.empty()) shorten(parts.front());
    if (open_end && !parts.empty()) shorten(parts.back());
    const bool nothing = parts.empty();
    if (open_begin) parts.insert(parts.begin(), Anything());
    if (open_end && !(open_begin && nothing)) parts.push_back(Anything());
    return SequenceNode(std::move(parts));
  }

  const std::string_view what_;
  int64_t copied_ = 0;
};

Parts PartsOf(RegexNode node) {
  if (node.kind == Kind::kSequence) return std::move(node.parts);
  Parts parts;
  parts.push_back(std::move(node));
  return parts;
}

// Narrows the counts of `repeat`, whose element has `length` characters, to texts of `least` to
// `most` characters. False when there is no count left.
bool Narrow(RegexNode& repeat, int64_t length, int64_t least, int64_t most) {
  repeat.least = std::max(repeat.least, (std::max<int64_t>(least, 0) + length - 1) / length);
  if (most != kNoLimit) {
    if (most < 0) return false;
    repeat.most = repeat.most == kNoLimit ? most / length : std::min(repeat.most, most / length);
  }
  return repeat.most == kNoLimit || repeat.least <= repeat.most;
}

}  // namespace

StatusOr<RegexNode> MatchedSomewhere(std::string_view what, RegexNode node) {
  return AnchorReader(what).Read(PartsOf(std::move(node)), true, true);
}

StatusOr<RegexNode> MatchedWhole(std::string_view what, RegexNode node) {
  return AnchorReader(what).Read(PartsOf(std::move(node)), false, false);
}

StatusOr<RegexNode> WithLength(std::string_view what, RegexNode node, int64_t least, int64_t most) {
  const auto within = [&](const RegexLengths& lengths) {
    return lengths.least >= least &&
           (most == kNoLimit || (lengths.most != kNoLimit && lengths.most <= most));
  };
  const auto apart = [&](const RegexLengths& lengths) {
    return (most != kNoLimit && lengths.least > most) ||
           (lengths.most != kNoLimit && lengths.most < least);
  };
  const RegexLengths lengths = LengthsOf(node);
  if (within(lengths)) return node;
  if (node.kind == Kind::kChoice) {
    Parts options;
    for (RegexNode& option : node.parts) {
      if (apart(LengthsOf(option))) continue;
      BATON_ASSIGN_OR_RETURN(RegexNode bounded, WithLength(what, std::move(option), least, most));
      options.push_back(std::move(bounded));
    }
    if (!options.empty()) return ChoiceNode(std::move(options));
  }
  if (apart(lengths)) {
    return InvalidArgument("{} allows no text of the length that minLength and maxLength state",
                           what);
  }
  Parts parts = PartsOf(std::move(node));
  const auto varies = [](const RegexNode& part) {
    const RegexLengths of_part = LengthsOf(part);
    return of_part.least != of_part.most;
  };
  const auto only = std::ranges::find_if(parts, varies);
  if (std::ranges::count_if(parts, varies) == 1 && only->kind == Kind::kRepeat) {
    const RegexLengths element = LengthsOf(only->parts[0]);
    int64_t others = 0;
    for (const RegexNode& part : parts) others += &part == &*only ? 0 : LengthsOf(part).least;
    if (element.least == element.most && element.least > 0) {
      const int64_t rest = most == kNoLimit ? kNoLimit : most - others;
      const bool limited = most != kNoLimit;
      if ((!limited || rest >= 0) && Narrow(*only, element.least, least - others, rest)) {
        return SequenceNode(std::move(parts));
      }
      return InvalidArgument("{} allows no text of the length that minLength and maxLength state",
                             what);
    }
  }
  RegexNode narrowed = SequenceNode(std::move(parts));
  if (most != kNoLimit) narrowed = NarrowedToMost(std::move(narrowed), most);
  if (const int64_t longest = LengthsOf(narrowed).most; longest == kNoLimit || longest >= least) {
    narrowed = NarrowedToLeast(std::move(narrowed), least);
  }
  if (within(LengthsOf(narrowed))) return narrowed;
  return InvalidArgument(
      "minLength and maxLength are not supported beside {}: more than one part of it varies in "
      "length",
      what);
}

}  // namespace baton
