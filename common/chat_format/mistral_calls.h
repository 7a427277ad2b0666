#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "common/chat_format/call_arguments.h"
#include "common/chat_format/call_names.h"
#include "common/chat_format/call_reader.h"
#include "common/chat_format/json_calls.h"
#include "common/chat_format/markers.h"

namespace baton {

// The formats of Mistral behind [TOOL_CALLS]: a JSON call or an array of them, or, since tokenizer
// v11, the name and the arguments: f{…}, f[ARGS]{…} or f[CALL_ID]id[ARGS]{…}
// (https://github.com/mistralai/mistral-common). Behind [ARGS], no arguments are {}.
class MistralCalls final : public CallReader {
 public:
  MistralCalls(const CallNames& names, const SpecialMarkers& special)
      : names_(names),
        next_(special.Signed("[TOOL_CALLS]")),
        args_(special.Signed("[ARGS]")),
        call_id_(special.Signed("[CALL_ID]")) {}

  State Read(std::string_view& text, ChatEvents& out) override;
  State Finish(ChatEvents& out) override;

 private:
  enum class Phase : uint8_t { kStart, kList, kName, kTag, kId, kBefore, kArguments };

  State ReadPart(std::string_view& text, ChatEvents& out);
  State ReadStart(std::string_view& text);
  State ReadWord(std::string_view& text, std::string& word);
  State ReadTag(std::string_view& text, ChatEvents& out);
  State ReadBefore(std::string_view& text, ChatEvents& out);
  State EndWithoutArguments(ChatEvents& out) const;
  bool BeginCall(ChatEvents& out) const;  // false: the name is none

  const CallNames names_;
  const std::string next_;  // the opening of another call
  const std::string args_;
  const std::string call_id_;
  Phase phase_ = Phase::kStart;
  std::optional<JsonCallList> list_;
  ArgumentsReader arguments_;
  std::string name_;
  std::string id_;
};

}  // namespace baton
