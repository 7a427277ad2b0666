#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "common/chat_format/chat_event.h"
#include "common/chat_format/json_scanner.h"
#include "common/chat_format/tool_schemas.h"

namespace baton {

// Reads one call of the form {"name": "f", "arguments": {…}}; "parameters" is another name of the
// arguments. The members may come in any order; "type", "id" and "index" may be added. Arguments
// may also be a string that contains the object. Arguments are passed on as they arrive, once the
// name is known. Not thread-safe.
class JsonCall final {
 public:
  using State = JsonScanner::State;

  // With `known`, only names of these tools are calls, and a call needs arguments: for text without
  // a marker, which could be any JSON. `known` outlives the reader.
  explicit JsonCall(const ToolSchemas* known = nullptr) : known_(known) {}

  // Removes what it consumes from the front of `text`. A call begins with '{'.
  State Read(std::string_view& text, ChatEvents& out);

 private:
  enum class Phase : uint8_t { kBegin, kKeyOrEnd, kKey, kColon, kValue, kInValue, kCommaOrEnd };
  enum class Member : uint8_t { kName, kArguments, kId, kOther };

  State Take(std::string_view& text, ChatEvents& out);
  State TakeByte(char c, ChatEvents& out);
  void BeginKey();
  bool BeginValue(char c, ChatEvents& out);
  bool EndKey();
  bool EndValue(ChatEvents& out);
  bool SetName(ChatEvents& out);
  State End(ChatEvents& out);

  const ToolSchemas* known_;
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
