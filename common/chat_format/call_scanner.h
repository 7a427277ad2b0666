#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "common/chat_format/call_reader.h"
#include "common/chat_format/call_syntax.h"
#include "common/chat_format/chat_event.h"
#include "common/chat_format/chat_format.h"
#include "common/chat_format/markers.h"
#include "common/chat_format/tool_schemas.h"

namespace baton {

// How calls are read from a text.
struct CallOptions {
  ToolCallFormat format = ToolCallFormat::kNone;  // not kHarmony
  SpecialMarkers special = {};
  std::shared_ptr<const ToolSchemas> tools = std::make_shared<ToolSchemas>();
  bool offered_only = false;  // ChatParserOptions
};

// Separates the text for the user from calls of tools. White space and closing markers beside a
// call are dropped. Malformed calls become content. Text comes in whole characters. Not
// thread-safe.
class CallScanner final {
 public:
  explicit CallScanner(const CallOptions& options);

  void Append(std::string_view text, ChatEvents& out);
  void Finish(ChatEvents& out);

 private:
  void Scan(std::string_view& text, bool last, ChatEvents& out);
  bool ScanContent(std::string_view& text, bool last, ChatEvents& out);
  // Drops white space and closing markers. Returns false when more text is needed.
  bool DropClosings(std::string_view& text, bool last);
  bool ScanCalls(std::string_view& text, ChatEvents& out);
  void AddContent(std::string_view text, ChatEvents& out);
  void FailCall(ChatEvents& out);
  void BeginCalls(std::string_view marker);
  std::unique_ptr<CallReader> ReaderOf(bool bare) const;
  // A format whose calls may come without a marker, at the beginning of the content or behind other
  // calls.
  bool BeginBareCalls(std::string_view& text);

  const CallOptions options_;
  const CallSyntax syntax_;
  const Markers beginnings_;
  std::string held_;   // may be the beginning of a marker
  std::string space_;  // white space and markers that are dropped if a call follows
  bool any_content_ = false;
  bool after_call_ = false;     // only white space and closing markers since the last call
  bool after_closing_ = false;  // a closing marker since the last call
  std::unique_ptr<CallReader> reader_;
  std::string raw_;     // what the reader consumed since the end of the last call
  size_t opening_ = 0;  // bytes of raw_ up to the end of the opening marker; 0 behind a call
};

}  // namespace baton
