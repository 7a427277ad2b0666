#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "common/chat_format/call_arguments.h"
#include "common/chat_format/call_names.h"
#include "common/chat_format/call_reader.h"

namespace baton {

// Reads one message of Functionary 3.2 behind ">>>": the recipient on a line of its own, then text
// for the recipient "all", else the JSON arguments of a call; no arguments are {}
// (https://github.com/MeetKai/functionary). The header of a text is dropped; the text itself is
// left to the caller.
class FunctionaryMessages final : public CallReader {
 public:
  // `next`: the marker of the next message.
  FunctionaryMessages(const CallNames& names, std::string next)
      : names_(names), next_(std::move(next)) {}

  State Read(std::string_view& text, ChatEvents& out) override;
  State Finish(ChatEvents& out) override;

 private:
  enum class Phase : uint8_t { kRecipient, kBefore, kArguments };

  State ReadRecipient(std::string_view& text);
  State ReadBefore(std::string_view& text, ChatEvents& out);
  State EndWithoutArguments(ChatEvents& out) const;

  const CallNames names_;
  const std::string next_;
  Phase phase_ = Phase::kRecipient;
  std::string recipient_;
  ArgumentsReader arguments_;
};

}  // namespace baton
