#include "router/api/block_writer.h"

#include <utility>

namespace baton::router {

void BlockWriter::Add(const ChatEvent& event) {
  switch (event.kind) {
    case ChatEvent::Kind::kContent:
      return AddText(ApiBlock::Kind::kText, event.text);
    case ChatEvent::Kind::kReasoning:
      return AddText(ApiBlock::Kind::kReasoning, event.text);
    case ChatEvent::Kind::kCallBegin:
      return BeginBlock({ApiBlock::Kind::kCall, event.id, event.text, "", true});
    case ChatEvent::Kind::kArguments:
      return AddText(ApiBlock::Kind::kCall, event.text);
    case ChatEvent::Kind::kCallEnd:
      return EndBlock();
    case ChatEvent::Kind::kCallFailed:
      EndBlock(/*complete=*/false);
      return AddText(ApiBlock::Kind::kText, event.text);
  }
}

void BlockWriter::EndBlock(bool complete) {
  if (!std::exchange(open_, false)) return;
  blocks_.back().complete = complete;
  OnEnd(blocks_.size() - 1, blocks_.back());
}

void BlockWriter::BeginBlock(ApiBlock block) {
  EndBlock();
  blocks_.push_back(std::move(block));
  open_ = true;
  OnBegin(blocks_.size() - 1, blocks_.back());
}

void BlockWriter::AddText(ApiBlock::Kind kind, const std::string& text) {
  if (!open_ || blocks_.back().kind != kind) BeginBlock({kind, "", "", "", true});
  blocks_.back().text += text;
  OnText(blocks_.size() - 1, blocks_.back(), text);
}

}  // namespace baton::router
