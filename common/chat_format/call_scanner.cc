#include "common/chat_format/call_scanner.h"

#include <utility>
#include <vector>

#include "common/chat_format/json_calls.h"
#include "common/chat_format/marked_calls.h"
#include "common/chat_format/mistral_calls.h"
#include "common/chat_format/python_calls.h"
#include "common/chat_format/tagged_calls.h"

namespace baton {
namespace {

constexpr std::string_view kPythonEnd = "<|python_end|>";

std::vector<std::string_view> OpeningsOf(ToolCallFormat format) {
  switch (format) {
    case ToolCallFormat::kHermes:
    case ToolCallFormat::kGlm:
      return {"<tool_call>"};
    case ToolCallFormat::kLlamaJson:
      return {"<|python_tag|>"};
    case ToolCallFormat::kPythonic:
      return {"<|python_start|>", kPythonEnd};
    case ToolCallFormat::kMistral:
      return {"[TOOL_CALLS]"};
    case ToolCallFormat::kQwenCoder:
      return {"<tool_call>", kQwenCoderCalls.call_begin};
    case ToolCallFormat::kDeepSeek:
      return {"<｜tool▁calls▁begin｜>"};
    case ToolCallFormat::kDsml:
      return {"<｜DSML｜function_calls>"};
    case ToolCallFormat::kKimi:
      return {"<|tool_calls_section_begin|>"};
    default:
      return {};
  }
}

// The reader of the calls behind `marker`.
std::unique_ptr<CallReader> ReaderOf(ToolCallFormat format,
                                     std::string_view marker,
                                     const ToolSchemas& tools) {
  switch (format) {
    case ToolCallFormat::kLlamaJson:
      return std::make_unique<LlamaCalls>(marker.empty() ? &tools : nullptr);
    case ToolCallFormat::kPythonic:
      return std::make_unique<PythonCalls>(marker.empty() ? &tools : nullptr);
    case ToolCallFormat::kMistral:
      return std::make_unique<MistralCalls>();
    case ToolCallFormat::kQwenCoder:
      return std::make_unique<TaggedCalls>(
          kQwenCoderCalls, tools, marker == kQwenCoderCalls.call_begin);
    case ToolCallFormat::kDeepSeek:
      return std::make_unique<MarkedCalls>(kDeepSeekCalls);
    case ToolCallFormat::kDsml:
      return std::make_unique<TaggedCalls>(kDsmlCalls, tools, false);
    case ToolCallFormat::kGlm:
      return std::make_unique<TaggedCalls>(kGlmCalls, tools, false);
    case ToolCallFormat::kKimi:
      return std::make_unique<MarkedCalls>(kKimiCalls);
    default:
      return std::make_unique<HermesCalls>();
  }
}

}  // namespace

CallScanner::CallScanner(ToolCallFormat format, std::shared_ptr<const ToolSchemas> tools)
    : format_(format), tools_(std::move(tools)), openings_(OpeningsOf(format)) {}

void CallScanner::Append(std::string_view text, ChatEvents& out) {
  const std::string joined = std::exchange(held_, {}) + std::string(text);
  std::string_view rest = joined;
  Scan(rest, /*last=*/false, out);
  held_ = rest;
}

void CallScanner::Finish(ChatEvents& out) {
  const std::string held = std::exchange(held_, {});
  std::string_view rest = held;
  Scan(rest, /*last=*/true, out);
  if (reader_ != nullptr && reader_->Finish(out) == CallReader::State::kBad) {
    out.FailCall(raw_);
    after_call_ = false;
  }
  if (!after_call_) out.Content(space_);
}

void CallScanner::Scan(std::string_view& text, bool last, ChatEvents& out) {
  while (!text.empty()) {
    const bool goes_on = reader_ == nullptr ? ScanContent(text, last, out) : ScanCalls(text, out);
    if (!goes_on) return;
  }
}

// Returns false when more text is needed.
bool CallScanner::ScanContent(std::string_view& text, bool last, ChatEvents& out) {
  if (!any_content_ && BeginBareCalls(text)) return true;
  const Markers::Found found = openings_.Find(text, last);
  AddContent(text.substr(0, found.at), out);
  text.remove_prefix(found.at);
  if (found.marker < 0) return false;
  const std::string_view marker = openings_[found.marker];
  text.remove_prefix(marker.size());
  if (marker != kPythonEnd) {
    BeginCalls(marker);
  } else if (!after_call_) {
    AddContent(marker, out);
  }
  return true;
}

bool CallScanner::BeginBareCalls(std::string_view& text) {
  const bool json = format_ == ToolCallFormat::kLlamaJson;
  if (!json && format_ != ToolCallFormat::kPythonic) return false;
  size_t begin = 0;
  while (begin < text.size() && IsSpace(text[begin])) ++begin;
  if (begin == text.size() || text[begin] != (json ? '{' : '[')) return false;
  space_ += text.substr(0, begin);
  text.remove_prefix(begin);
  BeginCalls("");
  any_content_ = true;
  return true;
}

void CallScanner::BeginCalls(std::string_view marker) {
  reader_ = ReaderOf(format_, marker, *tools_);
  raw_ = std::exchange(space_, {});
  raw_ += marker;
}

bool CallScanner::ScanCalls(std::string_view& text, ChatEvents& out) {
  std::string_view rest = text;
  const CallReader::State state = reader_->Read(rest, out);
  raw_ += text.substr(0, text.size() - rest.size());
  text = rest;
  if (state == CallReader::State::kMore) return false;
  after_call_ = state != CallReader::State::kBad;
  if (state == CallReader::State::kBad) out.FailCall(raw_);
  raw_.clear();
  if (state == CallReader::State::kCallEnded) return true;
  reader_.reset();
  any_content_ = true;
  return true;
}

void CallScanner::AddContent(std::string_view text, ChatEvents& out) {
  size_t end = text.size();
  while (end > 0 && IsSpace(text[end - 1])) --end;
  if (end > 0) {
    out.Content(std::exchange(space_, {}));
    out.Content(text.substr(0, end));
    any_content_ = true;
    after_call_ = false;
  }
  space_ += text.substr(end);
}

}  // namespace baton
