#include "router/api/chat_message.h"

#include <utility>

namespace baton::router {
namespace {

using Json = nlohmann::ordered_json;

// vLLM's name of the reasoning, and the name that DeepSeek and older clients use.
void SetReasoning(const std::string& text, Json& message) {
  message["reasoning"] = text;
  message["reasoning_content"] = text;
}

Json CallOf(const ApiBlock& block, const std::string& arguments) {
  return {{"id", block.call_id},
          {"type", "function"},
          {"function", {{"name", block.name}, {"arguments", arguments}}}};
}

}  // namespace

Json ChatMessage(const ApiChoice& choice) {
  std::string content;
  std::string reasoning;
  Json calls = Json::array();
  for (const ApiBlock& block : choice.output.blocks()) {
    switch (block.kind) {
      case ApiBlock::Kind::kText:
        content += block.text;
        break;
      case ApiBlock::Kind::kReasoning:
        reasoning += block.text;
        break;
      case ApiBlock::Kind::kCall:
        calls.push_back(CallOf(block, block.text));
        break;
    }
  }
  Json message = {{"role", "assistant"}, {"content", content}};
  if (content.empty() && !calls.empty()) message["content"] = nullptr;
  if (!reasoning.empty()) SetReasoning(reasoning, message);
  if (!calls.empty()) message["tool_calls"] = std::move(calls);
  return message;
}

Json ChatMessageStream::Delta(const ApiChoice& choice, bool first) {
  Write(choice.output.blocks());
  has_output_ = has_output_ || !content_.empty() || !calls_.empty();
  const bool ended = choice.finish != FinishReason::kNone;
  Json delta = Json::object();
  if (first) delta["role"] = "assistant";
  if (!content_.empty() || (ended && !has_output_)) {
    delta["content"] = std::exchange(content_, {});
  } else if (first) {
    delta["content"] = nullptr;  // as in a whole message, which may have calls alone
  }
  if (!reasoning_.empty()) SetReasoning(std::exchange(reasoning_, {}), delta);
  if (!calls_.empty()) delta["tool_calls"] = std::exchange(calls_, Json::array());
  return delta;
}

void ChatMessageStream::OnBegin(size_t, const ApiBlock& block) {
  if (block.kind != ApiBlock::Kind::kCall) return;
  Json call = {{"index", begun_calls_++}};
  call.update(CallOf(block, ""));
  calls_.push_back(std::move(call));
}

void ChatMessageStream::OnText(size_t, const ApiBlock& block, const std::string& text) {
  if (block.kind == ApiBlock::Kind::kText) {
    content_ += text;
  } else if (block.kind == ApiBlock::Kind::kReasoning) {
    reasoning_ += text;
  } else {
    const int32_t index = begun_calls_ - 1;
    if (calls_.empty() || calls_.back()["index"] != index) {
      calls_.push_back({{"index", index}, {"function", {{"arguments", ""}}}});
    }
    calls_.back()["function"]["arguments"].get_ref<std::string&>() += text;
  }
}

}  // namespace baton::router
