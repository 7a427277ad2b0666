#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "common/chat_format/call_arguments.h"
#include "common/chat_format/call_names.h"
#include "common/chat_format/call_reader.h"
#include "common/chat_format/call_syntax.h"
#include "common/chat_format/markers.h"

namespace baton {

// Reads one call of a format that puts a call's header and its arguments between markers, behind
// the opening marker. Without arguments a call has {}.
// - DeepSeek V3.1: the header is the name. DeepSeek V3 and R1: the header is "function"; the name
//   follows on a line of its own, then the arguments, mostly in a fence
//   (https://huggingface.co/deepseek-ai/DeepSeek-V3.1).
// - Kimi K2: the header is the id, functions.NAME:NUMBER
//   (https://huggingface.co/moonshotai/Kimi-K2-Instruct).
class MarkedCalls final : public CallReader {
 public:
  // `syntax` outlives the reader. `header_is_id`: as Kimi K2.
  MarkedCalls(const CallSyntax& syntax, const CallNames& names, bool header_is_id)
      : syntax_(syntax), markers_(syntax.All()), names_(names), header_is_id_(header_is_id) {}

  State Read(std::string_view& text, ChatEvents& out) override;
  State Finish(ChatEvents&) override { return State::kBad; }

 private:
  enum class Phase : uint8_t { kHeader, kName, kBefore, kFence, kArguments };

  State ReadPart(std::string_view& text, ChatEvents& out);
  State ReadHeader(std::string_view& text);
  State ReadName(std::string_view& text);
  State ReadBefore(std::string_view& text, ChatEvents& out);
  State ReadFence(std::string_view& text);
  State EndWithoutArguments(ChatEvents& out) const;
  bool BeginCall(ChatEvents& out) const;  // false: the header has no name

  const CallSyntax& syntax_;
  const Markers markers_;
  const CallNames names_;
  const bool header_is_id_;
  Phase phase_ = Phase::kHeader;
  ArgumentsReader arguments_;
  std::string header_;
  std::string line_;        // the name below the header
  size_t fence_bytes_ = 0;  // of the line of the fence
};

}  // namespace baton
