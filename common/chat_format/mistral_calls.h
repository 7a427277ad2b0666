#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "common/chat_format/call_reader.h"
#include "common/chat_format/json_call.h"
#include "common/chat_format/json_scanner.h"

namespace baton {

// The formats of Mistral behind [TOOL_CALLS]: an array of JSON calls, or, since tokenizer v11, the
// name and the arguments: f{…}, f[ARGS]{…} or f[CALL_ID]id[ARGS]{…}
// (https://github.com/mistralai/mistral-common).
class MistralCalls final : public CallReader {
 public:
  State Read(std::string_view& text, ChatEvents& out) override;
  State Finish(ChatEvents& out) override;

 private:
  enum class Phase : uint8_t { kStart, kItem, kCall, kAfterItem, kName, kTag, kId, kArguments };

  State TakeByte(char c, ChatEvents& out);
  State TakeTag(char c);

  Phase phase_ = Phase::kStart;
  bool array_ = false;
  bool any_ = false;  // a call has ended
  std::optional<JsonCall> call_;
  JsonScanner scanner_;
  std::string name_;
  std::string tag_;  // [ARGS] or [CALL_ID] so far
  std::string id_;
};

}  // namespace baton
