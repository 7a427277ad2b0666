#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "common/chat_format/call_reader.h"
#include "common/chat_format/tagged_value.h"
#include "common/chat_format/tool_schemas.h"

namespace baton {

// A format that writes each parameter of a call between tags.
struct TaggedFormat {
  std::string_view call_begin;  // empty: the name follows the opening marker
  std::string_view name_end;    // empty: the name ends at a line end or before '<'
  std::string_view key_begin;
  std::string_view key_end;
  std::string_view value_begin;  // empty: the value follows the key
  std::string_view value_end;
  std::string_view call_end;
  std::string_view section_end;  // empty: the end of the call is the end of the section
  bool in_lines = false;         // as in TaggedValue
};

// Qwen3-Coder: <tool_call><function=f><parameter=p>…</parameter></function></tool_call>
// (https://huggingface.co/Qwen/Qwen3-Coder-30B-A3B-Instruct).
extern const TaggedFormat kQwenCoderCalls;
// GLM 4.5: <tool_call>f <arg_key>p</arg_key> <arg_value>…</arg_value> </tool_call>
// (https://huggingface.co/zai-org/GLM-4.5).
extern const TaggedFormat kGlmCalls;
// DeepSeek V3.2: <｜DSML｜invoke name="f"><｜DSML｜parameter name="p" string="true">…
// (https://huggingface.co/deepseek-ai/DeepSeek-V3.2). string="true" or "false" states the type.
extern const TaggedFormat kDsmlCalls;

// Reads the calls of such a format behind the opening marker.
class TaggedCalls final : public CallReader {
 public:
  // `tools` states the types of parameters; it outlives the reader. `in_call`: the opening marker
  // was `call_begin`.
  TaggedCalls(const TaggedFormat& format, const ToolSchemas& tools, bool in_call);

  State Read(std::string_view& text, ChatEvents& out) override;
  State Finish(ChatEvents& out) override;

 private:
  enum class Phase : uint8_t { kBetween, kName, kInCall, kKey, kBeforeValue, kValue };

  State TakeByte(char c, ChatEvents& out);
  State TakeBetween(char c);
  State TakeName(char c, ChatEvents& out);
  State TakeInCall(char c, ChatEvents& out);
  State TakeKey(char c, ChatEvents& out);
  State TakeBeforeValue(char c);
  // Consumes text of the value up to its end or the end of `text`.
  void ReadValue(std::string_view& text, ChatEvents& out);
  bool BeginCall(std::string_view name, ChatEvents& out);
  bool BeginKey(std::string_view key, ChatEvents& out);

  const TaggedFormat format_;
  const ToolSchemas& tools_;
  Phase phase_;
  std::string held_;  // the tag, name or key so far
  std::string name_;
  std::optional<TaggedValue> value_;
  size_t end_matched_ = 0;  // bytes of value_end
  bool first_key_ = true;
  bool any_ = false;  // a call has ended
};

}  // namespace baton
