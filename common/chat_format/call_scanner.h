#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "common/chat_format/call_reader.h"
#include "common/chat_format/chat_event.h"
#include "common/chat_format/chat_format.h"
#include "common/chat_format/markers.h"
#include "common/chat_format/tool_schemas.h"

namespace baton {

// Separates the text for the user from calls of tools. White space beside a call is dropped.
// Malformed calls become content. Not thread-safe.
class CallScanner final {
 public:
  // `format` is not kHarmony.
  CallScanner(ToolCallFormat format, std::shared_ptr<const ToolSchemas> tools);

  void Append(std::string_view text, ChatEvents& out);
  void Finish(ChatEvents& out);

 private:
  void Scan(std::string_view& text, bool last, ChatEvents& out);
  bool ScanContent(std::string_view& text, bool last, ChatEvents& out);
  bool ScanCalls(std::string_view& text, ChatEvents& out);
  void AddContent(std::string_view text, ChatEvents& out);
  void BeginCalls(std::string_view marker);
  // A format whose calls may come without a marker, at the beginning of the content.
  bool BeginBareCalls(std::string_view& text);

  const ToolCallFormat format_;
  const std::shared_ptr<const ToolSchemas> tools_;
  const Markers openings_;
  std::string held_;   // may be the beginning of a marker
  std::string space_;  // white space that is dropped if a call follows
  bool any_content_ = false;
  bool after_call_ = false;
  std::unique_ptr<CallReader> reader_;
  std::string raw_;  // what the reader consumed since the end of the last call
};

}  // namespace baton
