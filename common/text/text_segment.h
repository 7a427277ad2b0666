#pragma once

#include <string>

namespace baton {

// A stretch of a prompt. Special tokens are recognised in trusted text (a template's own) and stay
// plain text in the other (what users wrote).
struct TextSegment {
  std::string text;
  bool trusted = false;
};

}  // namespace baton
