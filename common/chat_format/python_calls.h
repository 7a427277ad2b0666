#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "common/chat_format/call_reader.h"
#include "common/chat_format/python_value.h"
#include "common/chat_format/tool_schemas.h"

namespace baton {

// The pythonic format of Llama 3.2 and 4: [f(a="x", b=[1, 2]), g()]. Arguments are literals with
// names (https://www.llama.com/docs/model-cards-and-prompt-formats/llama4).
class PythonCalls final : public CallReader {
 public:
  // With `known`, only names of these tools are calls: for text without a marker. Outlives the
  // reader.
  explicit PythonCalls(const ToolSchemas* known = nullptr) : known_(known) {}

  State Read(std::string_view& text, ChatEvents& out) override;
  State Finish(ChatEvents& out) override;

 private:
  enum class Phase : uint8_t {
    kBegin,
    kBeforeName,
    kName,
    kKeyOrEnd,
    kKey,
    kValue,
    kAfterValue,
    kAfterCall,
  };

  State TakeByte(char c, ChatEvents& out);
  bool BeginCall(ChatEvents& out);
  void BeginValue(ChatEvents& out);
  State EndCall(ChatEvents& out);

  const ToolSchemas* known_;
  Phase phase_ = Phase::kBegin;
  PythonValue value_;
  std::string word_;   // the name or key so far
  bool first_ = true;  // the next argument is the first of its call
  bool any_ = false;   // a call has ended
};

}  // namespace baton
