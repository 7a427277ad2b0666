#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "common/chat_format/call_reader.h"
#include "common/chat_format/json_call.h"
#include "common/chat_format/markers.h"

namespace baton {

// The format of Hermes 2 Pro, Qwen 2.5 and Qwen 3: <tool_call> JSON </tool_call>
// (https://github.com/NousResearch/Hermes-Function-Calling).
class HermesCalls final : public CallReader {
 public:
  State Read(std::string_view& text, ChatEvents& out) override;
  State Finish(ChatEvents& out) override;

 private:
  enum class Phase : uint8_t { kBefore, kCall, kAfter };

  Phase phase_ = Phase::kBefore;
  JsonCall call_;
  Literal end_{"</tool_call>"};
  bool in_end_ = false;
};

// The format of Llama 3.1 and later: JSON objects, separated by semicolons or white space, behind
// <|python_tag|> or alone
// (https://www.llama.com/docs/model-cards-and-prompt-formats/llama3_1).
class LlamaCalls final : public CallReader {
 public:
  // With `known`, as in JsonCall.
  explicit LlamaCalls(const ToolSchemas* known = nullptr) : known_(known) {}

  State Read(std::string_view& text, ChatEvents& out) override;
  State Finish(ChatEvents& out) override;

 private:
  const ToolSchemas* known_;
  std::optional<JsonCall> call_;
  bool any_ = false;  // a call has ended
};

}  // namespace baton
