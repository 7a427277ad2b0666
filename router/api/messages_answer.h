#pragma once

#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "router/api/api_answer.h"
#include "router/api/block_writer.h"

namespace baton::router {

// The answer of Anthropic's /v1/messages, and its events
// (https://docs.anthropic.com/en/docs/build-with-claude/streaming).
class MessagesAnswer final : public ApiAnswer, private BlockWriter {
 public:
  // `stops`: the stop sequences of the request.
  MessagesAnswer(std::string id, std::string model, std::vector<std::string> stops)
      : id_(std::move(id)), model_(std::move(model)), stops_(std::move(stops)) {}

  std::string Body(const std::vector<ApiChoice>& choices, const GenerationEnd& end) override;
  std::string Begin(const GenerationEnd& usage) override;
  std::string Delta(const ApiDelta& delta) override;
  std::string End(const std::vector<ApiChoice>& choices, const GenerationEnd& end) override;
  std::string Failure(const std::vector<ApiChoice>& choices, const Status& status) override;
  std::string Error(const Status& status) override;

 private:
  void OnBegin(size_t number, const ApiBlock& block) override;
  void OnText(size_t number, const ApiBlock& block, const std::string& text) override;
  void OnEnd(size_t number, const ApiBlock& block) override;

  nlohmann::ordered_json Message() const;
  void SetStop(const ApiChoice& choice, nlohmann::ordered_json& out) const;
  void Event(const char* type, nlohmann::ordered_json event);

  const std::string id_;
  const std::string model_;
  const std::vector<std::string> stops_;
  std::string events_;
};

// An error in Anthropic's format.
std::string MessagesError(const Status& status);

}  // namespace baton::router
