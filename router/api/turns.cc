#include "router/api/turns.h"

#include <utility>

#include <nlohmann/json.hpp>

namespace baton::router {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kAssistant = "assistant";

// JSON with every byte of the client's text. Text that is not UTF-8 cannot come from parsed JSON.
std::string TextOf(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace

void Turns::AddText(const std::string& role, std::string text) {
  if (role == kAssistant) {
    // A text behind calls is a new turn.
    if (!calls_.empty()) EndAssistant();
    assistant_ = true;
    text_ += text;
    return;
  }
  EndAssistant();
  turns_.push_back({role, std::move(text), ""});
}

void Turns::AddReasoning(const std::string& text) {
  if (!calls_.empty() || !text_.empty()) EndAssistant();
  assistant_ = true;
  reasoning_ += text;
}

void Turns::AddCall(const std::string& id, const std::string& tool, const std::string& arguments) {
  assistant_ = true;
  calls_.push_back({id, tool, arguments});
  tools_[id] = tool;
}

void Turns::AddResult(const std::string& id, std::string text) {
  EndAssistant();
  Json extra = {{"tool_call_id", id}};
  if (const auto tool = tools_.find(id); tool != tools_.end()) extra["name"] = tool->second;
  turns_.push_back({"tool", std::move(text), TextOf(extra)});
}

std::vector<ChatTurn> Turns::Take() {
  EndAssistant();
  return std::exchange(turns_, {});
}

void Turns::EndAssistant() {
  if (!std::exchange(assistant_, false)) return;
  Json extra = Json::object();
  if (!reasoning_.empty()) extra["reasoning_content"] = std::exchange(reasoning_, {});
  for (const Call& call : calls_) {
    extra["tool_calls"].push_back(
        {{"id", call.id},
         {"type", "function"},
         {"function", {{"name", call.tool}, {"arguments", call.arguments}}}});
  }
  calls_.clear();
  turns_.push_back({kAssistant, std::exchange(text_, {}), extra.empty() ? "" : TextOf(extra)});
}

}  // namespace baton::router
