#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/token_id.h"

namespace baton {

// Classes of characters that grammars often repeat.
enum class TextClass : uint8_t {
  // What a JSON string may contain without an escape: the characters of Unicode from U+0020 on but
  // the quotation mark and the backslash, as UTF-8.
  kPlain,
  kWord,  // A to Z, a to z and 0 to 9
};
constexpr size_t kTextClasses = 2;
constexpr std::array<TextClass, kTextClasses> kAllTextClasses = {TextClass::kPlain,
                                                                 TextClass::kWord};

// Whether `byte`, below 0x80, is a character of the class.
constexpr bool IsInClass(TextClass text_class, uint8_t byte) {
  const bool word =
      (byte >= '0' && byte <= '9') || (byte >= 'A' && byte <= 'Z') || (byte >= 'a' && byte <= 'z');
  const bool plain = byte >= 0x20 && byte < 0x80 && byte != '"' && byte != '\\';
  return text_class == TextClass::kWord ? word : plain;
}

// The texts of all tokens as a trie, in arrays in the order of a depth-first walk: a node's subtree
// is the range from the node to end[node]. Node 0 is the root. Tokens are numbered in the sorted
// order of their texts, so the tokens of a subtree are a range, too. Immutable after Make.
struct TokenTrie {
  // What is known of the tokens with regard to a class of characters.
  struct Class {
    // The most characters that `rest` counts.
    static constexpr int kMaxRest = 254;
    // Not all texts below the node go on with characters of the class.
    static constexpr uint8_t kOther = 255;

    // [nodes] When each text below the node is that of the node and then characters of the class:
    // the largest number of these. Else kOther.
    std::vector<uint8_t> rest;
    std::vector<bool> whole;  // [nodes] the node's text consists of characters of the class
    // A mask with the tokens that consist of characters of the class, and the most characters of
    // one of them.
    std::vector<uint32_t> tokens;
    int longest = 0;
    // The same tokens, those with fewer characters first. [longest + 1] up_to[n]: how many of them
    // have at most n characters.
    std::vector<TokenId> by_length;
    std::vector<size_t> up_to;
  };

  // The tokens with a text: texts[t] is the text of token t, empty for a token without text.
  static TokenTrie Make(const std::vector<std::string>& texts);

  int32_t nodes() const { return static_cast<int32_t>(byte.size()); }
  int32_t tokens() const { return static_cast<int32_t>(ids.size()); }
  std::string_view text(int32_t token) const {
    const auto at = static_cast<size_t>(token);
    return std::string_view(bytes).substr(static_cast<size_t>(starts[at]),
                                          static_cast<size_t>(starts[at + 1] - starts[at]));
  }
  // Tokens that spell `text`, each the longest one that is a beginning of what is left: at most
  // `most`, and none for a rest that no token begins.
  std::vector<TokenId> Spell(std::string_view text, size_t most) const;
  // The node below `node` whose text has one byte more, `next`; -1 when there is none.
  int32_t ChildOf(int32_t node, uint8_t next) const;
  const Class& of(TextClass text_class) const { return classes[static_cast<size_t>(text_class)]; }

  // [nodes]; `first` has one element more.
  std::vector<uint8_t> byte;   // that leads to the node from its parent
  std::vector<int32_t> end;    // the node behind the subtree
  std::vector<int32_t> first;  // the first token of the subtree; the node's own tokens come first
  std::array<Class, kTextClasses> classes;
  // The nodes below the root, with their bytes. They are far from each other in the arrays.
  struct Child {
    int32_t node = 0;
    uint8_t byte = 0;
  };
  std::vector<Child> of_root;

  std::vector<int32_t> numbers;  // [texts] the numbers of the tokens, -1 without a text
  // [tokens]
  std::vector<TokenId> ids;
  std::vector<int32_t> subtree;  // the token behind those that begin with the text of this one
  // The texts of the tokens: text t is bytes[starts[t], starts[t + 1]).
  std::string bytes;
  std::vector<int32_t> starts;
  size_t longest = 0;  // bytes of the longest text
};

}  // namespace baton
