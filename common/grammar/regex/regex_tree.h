#pragma once

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "common/grammar/regex/code_points.h"

namespace baton {

// A part of a regular expression.
struct RegexNode {
  enum class Kind : uint8_t {
    kClass,     // one character of a set
    kSequence,  // all parts, one after the other; without a part, the empty text
    kChoice,    // one of the parts
    kRepeat,    // the only part, from `least` to `most` times
    kBegin,     // ^
    kEnd,       // $
  };
  static constexpr int64_t kNoLimit = -1;

  Kind kind = Kind::kSequence;
  CodePoints characters = {};
  std::vector<RegexNode> parts = {};
  int64_t least = 1;
  int64_t most = 1;  // kNoLimit: any number of times
};

RegexNode ClassNode(CodePoints characters);
RegexNode SequenceNode(std::vector<RegexNode> parts);
RegexNode ChoiceNode(std::vector<RegexNode> parts);
RegexNode RepeatNode(RegexNode part, int64_t least, int64_t most);

// What follows is for nodes without anchors.

// The least and the most characters of a text that matches.
struct RegexLengths {
  int64_t least = 0;
  int64_t most = 0;  // RegexNode::kNoLimit: any number
};
RegexLengths LengthsOf(const RegexNode& node);

// The number of classes when all repetitions are written out, at most 2^32.
int64_t SizeOf(const RegexNode& node);

// Whether the whole UTF-8 text matches. Takes time in proportion to the node, the text and the
// bounds of its repetitions.
bool Matches(const RegexNode& node, std::string_view text);

}  // namespace baton
