#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace baton {

// A part of a chat model's output. Calls do not nest: the events of one call follow each other,
// apart from content.
struct ChatEvent {
  enum class Kind : uint8_t {
    kContent,    // text for the user
    kReasoning,  // text of the model's reasoning
    kCallBegin,  // text: the name of the tool; id: the call's id if the model gave one
    kArguments,  // text: the next bytes of the call's arguments, a JSON object
    kCallEnd,    // the arguments are complete and valid JSON
    // The call that has begun is malformed or cut off. text: all of it, as the model wrote it.
    kCallFailed,
  };

  Kind kind = Kind::kContent;
  std::string text;
  std::string id;

  bool operator==(const ChatEvent&) const = default;
};

// Collects events; text is appended to the last event when that has the same kind. The signs of
// special tokens (`kSpecialSign`) are left out. Not thread-safe.
class ChatEvents final {
 public:
  void Content(std::string_view text) { Text(ChatEvent::Kind::kContent, text); }
  void Reasoning(std::string_view text) { Text(ChatEvent::Kind::kReasoning, text); }
  void Arguments(std::string_view text) { Text(ChatEvent::Kind::kArguments, text); }
  void BeginCall(std::string_view name, std::string_view id = {});
  void EndCall();
  // The call that is under way, or about to begin, is not one. `raw` is all of its text. It becomes
  // content if the call has not begun, else kCallFailed.
  void FailCall(std::string_view raw);

  bool in_call() const { return in_call_; }
  void Add(std::vector<ChatEvent> events);  // of whole calls

  // The events since the last Take.
  std::vector<ChatEvent> Take();

 private:
  void Text(ChatEvent::Kind kind, std::string_view text);

  std::vector<ChatEvent> events_;
  bool in_call_ = false;
};

}  // namespace baton
