#pragma once

#include <string>

#include <nlohmann/json.hpp>

#include "router/api/api_answer.h"
#include "router/api/block_writer.h"

namespace baton::router {

// The message of a choice of /v1/chat/completions.
nlohmann::ordered_json ChatMessage(const ApiChoice& choice);

// The same message in a stream: clients add up the members `delta` of one choice's chunks. Not
// thread-safe.
class ChatMessageStream final : private BlockWriter {
 public:
  // What was added to `choice` since the last call. `first`: of this choice. An object without
  // members: nothing.
  nlohmann::ordered_json Delta(const ApiChoice& choice, bool first);

 private:
  void OnBegin(size_t number, const ApiBlock& block) override;
  void OnText(size_t number, const ApiBlock& block, const std::string& text) override;
  void OnEnd(size_t, const ApiBlock&) override {}

  std::string content_;
  std::string reasoning_;
  nlohmann::ordered_json calls_ = nlohmann::ordered_json::array();
  int32_t begun_calls_ = 0;
  bool has_output_ = false;  // content or calls
};

}  // namespace baton::router
