#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "common/chat_format/call_names.h"
#include "common/chat_format/call_reader.h"
#include "common/chat_format/call_syntax.h"
#include "common/chat_format/markers.h"
#include "common/chat_format/tagged_value.h"
#include "common/chat_format/tool_schemas.h"

namespace baton {

// Reads one call of a format that writes each parameter between tags, behind the opening marker.
// The call begins with the marker that follows its name. A value ends at its closing tag, else at
// the next marker of the format.
// - Qwen3-Coder: <tool_call><function=f><parameter=p>…</parameter></function></tool_call>
//   (https://huggingface.co/Qwen/Qwen3-Coder-30B-A3B-Instruct).
// - GLM 4.5: <tool_call>f <arg_key>p</arg_key> <arg_value>…</arg_value> </tool_call>
//   (https://huggingface.co/zai-org/GLM-4.5).
// - DeepSeek V3.2: <｜DSML｜invoke name="f"><｜DSML｜parameter name="p" string="true">…
//   (https://huggingface.co/deepseek-ai/DeepSeek-V3.2). string="true" or "false" states the type.
// - MiniMax M2: <minimax:tool_call><invoke name="f"><parameter name="p">…
//   (https://huggingface.co/MiniMaxAI/MiniMax-M2).
// - Kimi K3: <|open|>call tool="f" index="1"<|sep|><|open|>argument key="p" type="string"<|sep|>…
//   type="…" states the type.
class TaggedCalls final : public CallReader {
 public:
  // `syntax` and `tools`, which states the types of parameters, outlive the reader.
  TaggedCalls(const CallSyntax& syntax, const CallNames& names, const ToolSchemas& tools);

  State Read(std::string_view& text, ChatEvents& out) override;
  State Finish(ChatEvents&) override { return State::kBad; }

 private:
  enum class Phase : uint8_t { kName, kNameEnd, kInCall, kKey, kBeforeValue, kValue };

  State ReadPart(std::string_view& text, ChatEvents& out);
  State ReadName(std::string_view& text);
  State ReadNameEnd(std::string_view& text);
  State ReadInCall(std::string_view& text, ChatEvents& out);
  State ReadKey(std::string_view& text, ChatEvents& out);
  State ReadBeforeValue(std::string_view& text);
  State ReadValue(std::string_view& text, ChatEvents& out);
  void BeginCall(ChatEvents& out);
  bool BeginKey(std::string_view key, ChatEvents& out);

  const CallSyntax& syntax_;
  const ToolSchemas& tools_;
  const CallNames names_;
  const Markers markers_;
  const Markers name_ends_;  // and all markers
  const Markers key_ends_;   // the same
  Phase phase_ = Phase::kName;
  std::string name_;
  std::string number_;  // behind the name
  std::string key_;
  std::optional<TaggedValue> value_;
  bool begun_ = false;
  bool first_key_ = true;
};

}  // namespace baton
