#pragma once

#include <map>
#include <string>
#include <vector>

#include "router/generation.h"

namespace baton::router {

// Builds the turns of a chat from the items of APIs that state text, reasoning, calls and results
// separately. Reasoning, text and calls of the assistant that follow each other become one turn, as
// chat templates expect. Not thread-safe.
class Turns final {
 public:
  void AddText(const std::string& role, std::string text);
  void AddReasoning(const std::string& text);
  // `arguments`: JSON text.
  void AddCall(const std::string& id, const std::string& tool, const std::string& arguments);
  void AddResult(const std::string& id, std::string text);

  std::vector<ChatTurn> Take();

 private:
  struct Call {
    std::string id;
    std::string tool;
    std::string arguments;
  };

  void EndAssistant();

  std::vector<ChatTurn> turns_;
  bool assistant_ = false;  // the members below are a turn under way
  std::string text_;
  std::string reasoning_;
  std::vector<Call> calls_;
  std::map<std::string, std::string> tools_;  // by the id of the call
};

}  // namespace baton::router
