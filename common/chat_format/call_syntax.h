#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/chat_format/chat_format.h"
#include "common/chat_format/markers.h"

namespace baton {

// What a format writes behind the opening marker of a call, and so which reader reads it.
enum class CallStyle : uint8_t {
  kNone,
  kJson,       // one JSON call; see HermesCalls
  kJsonList,   // JSON calls, in an array or one behind the other; see JsonListCalls
  kBareJson,   // as kJsonList, with or without an opening marker; see JsonCallList
  kPython,     // a list of Python's calls; see PythonCalls
  kMistral,    // see MistralCalls
  kMarked,     // a header and a JSON object; see MarkedCalls
  kMarkedId,   // the same, with an id that contains the name
  kTagged,     // each argument between tags; see TaggedCalls
  kGemma,      // see GemmaCalls
  kMiniMaxM3,  // see MiniMaxM3Calls
  kMessages,   // see FunctionaryMessages
};

// The markers of one format of calls, as they stand in a parser's text.
struct CallSyntax {
  CallStyle style = CallStyle::kNone;
  // The parts of the markers that may be tokens of a vocabulary.
  std::vector<std::string_view> tokens = {};
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
  bool numbered = false;  // the number of the call may follow its name: f" index="1
  // Calls may come without an opening marker, at the beginning of the content or behind others.
  bool bare = false;
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

// The markers of `format` as text. Of kHarmony, which HarmonyParser reads, only the tokens.
const CallSyntax& PlainSyntaxOf(ToolCallFormat format);
// `special`: the markers that stand in the parser's text as special tokens.
CallSyntax SyntaxOf(ToolCallFormat format, const SpecialMarkers& special);

}  // namespace baton
