#include "router/api/output_blocks.h"

#include <utility>

#include "common/text/utf8.h"

namespace baton::router {
namespace {

constexpr std::string_view kSpace = " \t\n\r";

// Where the last brace of `text` begins, if at most white space follows it.
size_t LastBrace(std::string_view text) {
  const size_t last = text.find_last_not_of(kSpace);
  return last != std::string_view::npos && text[last] == '}' ? last : text.size();
}

}  // namespace

void OutputBlocks::Add(const ChatEvent& event) {
  EndFailedCall(/*cut=*/false);
  switch (event.kind) {
    case ChatEvent::Kind::kContent:
    case ChatEvent::Kind::kReasoning:
      if (in_call_) return waiting_.push_back(event);
      return AddText(event.kind == ChatEvent::Kind::kContent ? ApiBlock::Kind::kText
                                                             : ApiBlock::Kind::kReasoning,
                     event.text);
    case ChatEvent::Kind::kCallBegin:
      in_call_ = true;
      shown_ = {};
      call_ = {.kind = ApiBlock::Kind::kCall, .call_id = event.id, .name = event.text};
      return;
    case ChatEvent::Kind::kArguments:
      return AddArguments(event.text);
    case ChatEvent::Kind::kCallEnd:
      return EndCall();
    case ChatEvent::Kind::kCallFailed:
      return FailCall(event.text);
  }
}

void OutputBlocks::End(bool cut) {
  if (in_call_) FailCall("");
  EndFailedCall(cut);
  EndBlock(!cut);
}

void OutputBlocks::AddText(ApiBlock::Kind kind, std::string_view text) {
  if (text.empty()) return;
  if (blocks_.empty() || blocks_.back().ended || blocks_.back().kind != kind) {
    BeginBlock({.kind = kind});
  }
  blocks_.back().text += std::exchange(tail_, {});
  blocks_.back().text += text;
}

void OutputBlocks::AddArguments(std::string_view text) {
  const size_t end = LastBrace(text);
  const bool only_space = text.find_first_not_of(kSpace) == std::string_view::npos;
  const bool waits = whole_calls_ || (call_.has_value() && held_.size() + end <= 1) ||
                     (!held_.empty() && only_space);
  if (!waits) {
    ShowArguments(text.substr(0, end));
    text.remove_prefix(end);
  }
  held_ += text;
}

void OutputBlocks::ShowArguments(std::string_view text) {
  if (call_.has_value()) BeginBlock(*std::exchange(call_, std::nullopt));
  held_ += text;
  shown_.Append(held_);
  blocks_.back().text += std::exchange(held_, {});
}

void OutputBlocks::EndCall() {
  ShowArguments("");
  EndBlock(/*complete=*/true);
  AddWaiting();
}

void OutputBlocks::FailCall(const std::string& raw) {
  held_.clear();
  if (std::exchange(call_, std::nullopt).has_value()) {
    AddText(ApiBlock::Kind::kText, raw);
  } else {
    failed_ = true;
    tail_ = raw.substr(raw.size() - IncompleteTail(raw));
  }
  AddWaiting();
}

void OutputBlocks::EndFailedCall(bool cut) {
  if (!std::exchange(failed_, false)) return;
  if (!cut) blocks_.back().text += shown_.WrongEnd();
  EndBlock(/*complete=*/false);
}

void OutputBlocks::AddWaiting() {
  in_call_ = false;
  for (const ChatEvent& event : std::exchange(waiting_, {})) Add(event);
}

void OutputBlocks::BeginBlock(ApiBlock block) {
  EndBlock(/*complete=*/true);
  blocks_.push_back(std::move(block));
}

void OutputBlocks::EndBlock(bool complete) {
  if (blocks_.empty() || blocks_.back().ended) return;
  ApiBlock& block = blocks_.back();
  if (const size_t tail = IncompleteTail(block.text); tail > 0) {
    block.text.resize(block.text.size() - tail);
    AppendUtf8(block.text, kReplacementCharacter);
  }
  block.ended = true;
  block.complete = complete;
}

}  // namespace baton::router
