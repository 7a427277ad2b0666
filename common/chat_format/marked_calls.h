#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "common/chat_format/call_reader.h"
#include "common/chat_format/json_scanner.h"

namespace baton {

// A format that puts a call's header and its arguments between markers.
struct MarkedFormat {
  std::string_view call_begin;
  std::string_view arguments_begin;
  std::string_view call_end;
  std::string_view section_end;
  // The header is the id, functions.NAME:NUMBER; else the name.
  bool header_is_id = false;
};

// DeepSeek V3.1: the header is the name. DeepSeek V3 and R1: the header is "function"; the name
// follows on a line of its own, then the arguments in a fence of JSON
// (https://huggingface.co/deepseek-ai/DeepSeek-V3.1).
extern const MarkedFormat kDeepSeekCalls;
// Kimi K2 (https://huggingface.co/moonshotai/Kimi-K2-Instruct).
extern const MarkedFormat kKimiCalls;

// Reads the calls of such a format behind the marker of the section.
class MarkedCalls final : public CallReader {
 public:
  explicit MarkedCalls(const MarkedFormat& format) : format_(format) {}

  State Read(std::string_view& text, ChatEvents& out) override;
  State Finish(ChatEvents& out) override;

 private:
  enum class Phase : uint8_t { kBetween, kHeader, kName, kFence, kBefore, kArguments, kAfter };

  State TakeByte(char c, ChatEvents& out);
  State TakeBetween(char c);
  State TakeHeader(char c);
  State TakeAfter(char c);
  // False: the header has no name.
  bool BeginCall(ChatEvents& out) const;

  const MarkedFormat format_;
  Phase phase_ = Phase::kBetween;
  JsonScanner scanner_;
  std::string held_;  // the marker or line so far
  std::string header_;
  bool fenced_ = false;
  bool any_ = false;  // a call has ended
};

}  // namespace baton
