#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "common/chat_format/call_names.h"
#include "common/chat_format/call_reader.h"
#include "common/chat_format/call_syntax.h"
#include "common/chat_format/gemma_value.h"

namespace baton {

// Reads one call of Gemma 4 behind the opening marker: call:f{key:71}
// (https://huggingface.co/google/gemma-4-31B-it). A call without arguments has {}. The closing
// marker also closes the brackets that are still open.
class GemmaCalls final : public CallReader {
 public:
  // `syntax` outlives the reader.
  GemmaCalls(const CallSyntax& syntax, const CallNames& names)
      : end_(syntax.closings.front()), names_(names), arguments_(syntax) {}

  State Read(std::string_view& text, ChatEvents& out) override;
  State Finish(ChatEvents&) override { return State::kBad; }

 private:
  enum class Phase : uint8_t { kPrefix, kName, kBefore, kArguments };

  State ReadPart(std::string_view& text, ChatEvents& out);
  State ReadPrefix(std::string_view& text);
  State ReadName(std::string_view& text);
  State ReadBefore(std::string_view& text, ChatEvents& out);
  State ReadArguments(std::string_view& text, ChatEvents& out);

  const std::string& end_;
  const CallNames names_;
  Phase phase_ = Phase::kPrefix;
  std::string name_;
  GemmaValue arguments_;
};

}  // namespace baton
