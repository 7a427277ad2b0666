#pragma once

#include <string>
#include <string_view>

#include "common/chat_format/chat_event.h"
#include "common/chat_format/tool_schemas.h"

namespace baton {

// Appends `text` as the inside of a JSON string.
void AppendEscaped(std::string_view text, std::string& json);

// Turns the value of a parameter, which a model wrote between tags without quotes, into JSON. The
// text of a string is passed on as it arrives; for other types the whole value is needed. Not
// thread-safe.
class TaggedValue final {
 public:
  // `in_lines`: the value is on lines of its own, so one line end before and one after it do not
  // count.
  TaggedValue(ParameterType type, bool in_lines);

  void Append(std::string_view text, ChatEvents& out);
  void Finish(ChatEvents& out);

 private:
  ParameterType type_;
  bool in_lines_;
  bool begun_ = false;
  std::string text_;  // a string: the line end that is held back; else the value so far
};

}  // namespace baton
