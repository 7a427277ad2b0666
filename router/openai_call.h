#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/http/http_server.h"
#include "router/openai_request.h"
#include "router/openai_response.h"
#include "router/request_frontend.h"

namespace baton::router {

// One HTTP request and the generations that answer it, one for each prompt: puts their output
// together as a body at the end, or as a stream. The first generation that fails ends the others
// and the call; before the first event that is an HTTP status. Kept alive by its generations.
// Thread-safe.
class OpenAiCall final : public std::enable_shared_from_this<OpenAiCall> {
 public:
  // `prompts`: the text of each, to be echoed; or none.
  OpenAiCall(OpenAiAnswer answer,
             const OpenAiRequest& request,
             std::vector<std::string> prompts,
             std::shared_ptr<HttpExchange> http);

  // Starts all generations. `frontend` outlives the call.
  void Start(RequestFrontend& frontend, OpenAiRequest request);

 private:
  class Part;

  void OnDelta(size_t prompt, GenerationDelta delta);
  void OnEnd(const GenerationEnd& end);
  void Keep(const std::shared_ptr<Generation>& generation);
  void CancelAll(const Status& why);
  void Fail(const Status& status);
  void Complete();
  void Write(std::string event);

  const OpenAiAnswer answer_;
  const bool stream_;
  const bool with_logprobs_;
  const size_t samples_;  // of each prompt
  const std::vector<std::string> prompts_;
  const std::shared_ptr<HttpExchange> http_;

  std::mutex mutex_;  // guards what follows, and the order of events
  std::vector<std::weak_ptr<Generation>> generations_;
  std::vector<OpenAiChoice> choices_;  // by prompt, then sample
  std::vector<bool> begun_;            // by choice
  size_t running_;                     // prompts without an end
  GenerationEnd total_;
  Status failure_;
  bool streaming_ = false;
};

// Answers an error.
void ReplyError(HttpExchange& http, const Status& status);

}  // namespace baton::router
