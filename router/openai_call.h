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

// One HTTP request and its generations, one for each prompt. Combines their output into one body at
// the end, or into one stream. The first generation that fails ends the others and the call. A
// failure before the first event of a stream becomes an HTTP status, a later one an error event.
// Kept alive by its generations. Thread-safe.
class OpenAiCall final : public std::enable_shared_from_this<OpenAiCall> {
 public:
  // `prompts`: the text of each prompt if it is to be echoed, else empty.
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
  const size_t samples_;  // per prompt
  const std::vector<std::string> prompts_;
  const std::shared_ptr<HttpExchange> http_;

  std::mutex mutex_;  // guards the following members and the order of events
  std::vector<std::weak_ptr<Generation>> generations_;
  std::vector<OpenAiChoice> choices_;  // sorted by prompt, then sample
  std::vector<bool> begun_;            // per choice: its first output has arrived
  size_t running_;                     // number of prompts that have not ended
  GenerationEnd total_;
  Status failure_;
  bool streaming_ = false;
};

// Answers the request with an error.
void ReplyError(HttpExchange& http, const Status& status);

}  // namespace baton::router
