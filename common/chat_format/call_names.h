#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "common/chat_format/markers.h"
#include "common/chat_format/tool_schemas.h"

namespace baton {

constexpr size_t kMaxCallNameBytes = 4096;  // of a name, a header, a key or an id

// Whether `c` may stand in the name of a tool: not white space, brackets, quotation marks or '<',
// which mean that a model did not write a name here.
inline bool IsNameByte(char c) {
  const auto byte = static_cast<unsigned char>(c);
  if (byte <= ' ' || byte == 0x7F || c == kSpecialSign) return false;
  return std::string_view("{}[]()<>\"'`").find(c) == std::string_view::npos;
}

// Moves the name at the front of `text`, or the next part of it, to `name`, without the white space
// before it. The name is over unless `text` is empty then. Returns false when the name is too long.
inline bool TakeName(std::string_view& text, std::string& name) {
  if (name.empty()) text.remove_prefix(SpaceAtFront(text));
  size_t length = 0;
  while (length < text.size() && IsNameByte(text[length])) ++length;
  name += text.substr(0, length);
  text.remove_prefix(length);
  return name.size() <= kMaxCallNameBytes;
}

// Which names a reader takes as calls. A value; the tools outlive it.
class CallNames final {
 public:
  // `offered_only`: only names of `tools` are calls.
  CallNames(const ToolSchemas& tools, bool offered_only)
      : tools_(&tools), offered_only_(offered_only) {}

  bool Allow(std::string_view name) const {
    if (name.empty() || name.size() > kMaxCallNameBytes) return false;
    for (const char c : name) {
      if (!IsNameByte(c)) return false;
    }
    return !offered_only_ || tools_->Has(name);
  }

 private:
  const ToolSchemas* tools_;
  bool offered_only_;
};

}  // namespace baton
