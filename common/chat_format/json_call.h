#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "common/chat_format/bracket_skipper.h"
#include "common/chat_format/call_names.h"
#include "common/chat_format/chat_event.h"
#include "common/chat_format/json_scanner.h"

namespace baton {

// Reads one call of the form {"name": "f", "arguments": {…}}; "parameters" is another name of the
// arguments, "tool_name" of the name. The members may come in any order; "type", "id", "index" and
// "tool_call_id" may be added. Arguments may also be a string that contains the object; none, null
// and "" are {}. Arguments are passed on as they arrive, once the name is known. Not thread-safe.
class JsonCall final {
 public:
  using State = JsonScanner::State;

  // `bare`: a call needs arguments, because without a marker the text could be any JSON.
  JsonCall(const CallNames& names, bool bare) : names_(names), bare_(bare) {}

  // Removes what it consumes from the front of `text`; not a byte at fault. A call begins with '{'.
  State Read(std::string_view& text, ChatEvents& out);
  // Ends a call whose last brace is missing. Returns false when more than that is missing.
  bool EndWithoutBrace(ChatEvents& out);
  // Finds the end of a call that is bad.
  BracketSkipper Skipper() const;

 private:
  enum class Phase : uint8_t { kBegin, kKeyOrEnd, kKey, kColon, kValue, kInValue, kCommaOrEnd };
  enum class Member : uint8_t { kName, kArguments, kId, kOther };

  State Take(std::string_view& text, ChatEvents& out);
  State TakeByte(char c, ChatEvents& out);
  State After(bool good, Phase next);
  bool BeginKey(char c);
  bool BeginValue(char c, ChatEvents& out);
  bool EndKey();
  bool EndValue(ChatEvents& out);
  bool SetName(ChatEvents& out);
  void BeginCall(ChatEvents& out);
  State End(ChatEvents& out);

  CallNames names_;
  bool bare_;
  Phase phase_ = Phase::kBegin;
  Member member_ = Member::kOther;
  JsonScanner scanner_;
  bool streams_ = false;  // the value is passed on as it arrives
  std::string gathered_;  // the key or value so far
  std::string name_;
  std::string id_;
  std::string arguments_;  // complete arguments that wait for the name
  bool named_ = false;
  bool has_arguments_ = false;
  bool begun_ = false;
};

}  // namespace baton
