#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/chat_format/chat_format.h"
#include "common/chat_format/markers.h"

namespace baton {

// The markers of one format of calls, as they stand in a parser's text.
struct CallSyntax {
  std::vector<std::string> openings = {};  // a call begins behind it
  std::vector<std::string> sections = {};  // stand before the calls of a section
  std::vector<std::string> closings = {};  // are dropped behind a call
  std::string trailer = {};                // text that is dropped behind a call, too
  // Of formats whose arguments are between markers or tags:
  std::string arguments_begin = {};  // ends the header
  std::string name_end = {};         // empty: white space or a marker ends the name
  std::string key_begin = {};
  std::string key_end = {};
  std::string value_begin = {};  // empty: the value follows the key
  std::string value_end = {};
  bool in_lines = false;  // as in TaggedValue
  // The openings are special tokens, so ordinary text contains no call.
  bool special = false;

  bool IsOpening(std::string_view marker) const;
  bool IsClosing(std::string_view marker) const;
  // Openings and sections.
  std::vector<std::string> Beginnings() const;
  // All markers but key_end and value_begin. At one of them a header ends, and a value that has no
  // end of its own.
  std::vector<std::string> All() const;
};

// `format` is not kHarmony.
CallSyntax SyntaxOf(ToolCallFormat format, const SpecialMarkers& special);

}  // namespace baton
