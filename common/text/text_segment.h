#pragma once

#include <string>

namespace baton {

// A part of a prompt. Special tokens are recognised in trusted text (the template's own) and stay
// plain text in untrusted text (which users wrote).
struct TextSegment {
  std::string text;
  bool trusted = false;
};

}  // namespace baton
