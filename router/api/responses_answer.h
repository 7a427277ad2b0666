#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "router/api/api_answer.h"
#include "router/api/block_writer.h"

namespace baton::router {

// The answer of /v1/responses, and its events
// (https://platform.openai.com/docs/api-reference/responses-streaming).
class ResponsesAnswer final : public ApiAnswer, private BlockWriter {
 public:
  // `request`: the request's body, whose settings the answer repeats.
  ResponsesAnswer(std::string id,
                  std::string model,
                  int64_t created,
                  nlohmann::ordered_json request);

  std::string Body(const std::vector<ApiChoice>& choices, const GenerationEnd& end) override;
  std::string Begin(const GenerationEnd& usage) override;
  std::string Delta(const ApiDelta& delta) override;
  std::string End(const std::vector<ApiChoice>& choices, const GenerationEnd& end) override;
  std::string Failure(const std::vector<ApiChoice>& choices, const Status& status) override;
  std::string Error(const Status& status) override;

 private:
  using Json = nlohmann::ordered_json;

  void OnBegin(size_t number, const ApiBlock& block) override;
  void OnText(size_t number, const ApiBlock& block, const std::string& text) override;
  void OnEnd(size_t number, const ApiBlock& block) override;

  Json Response(const char* status) const;
  Json Ended(const ApiChoice& choice, const GenerationEnd& end) const;
  Json Output(const ApiChoice& choice) const;
  Json Item(size_t number, const ApiBlock& block, const char* status) const;
  std::string ItemId(size_t number, ApiBlock::Kind kind) const;
  void Event(const char* type, Json event);

  const std::string id_;
  const std::string model_;
  const int64_t created_;
  const Json request_;
  std::string events_;
  int64_t sequence_ = 0;
};

}  // namespace baton::router
