#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "common/http/http_server.h"
#include "router/api/api_answer.h"
#include "router/api/api_request.h"
#include "router/frontend/request_frontend.h"

namespace baton::router {

// One HTTP request and its generations, one for each prompt. Combines their output into one body at
// the end, or into one stream. The first generation that fails ends the others and the call. A
// failure before the first event of a stream becomes an HTTP status, a later one an error event.
// When the deadline ends an answer that is not streamed, the client gets what was generated. Kept
// alive by its generations. Thread-safe.
class ApiCall final : public std::enable_shared_from_this<ApiCall> {
 public:
  // `prompts`: the text of each prompt if it is to be echoed, else empty.
  ApiCall(std::unique_ptr<ApiAnswer> answer,
          const ApiRequest& request,
          std::vector<std::string> prompts,
          std::shared_ptr<HttpExchange> http);

  // Starts all generations. `frontend` outlives the call.
  void Start(RequestFrontend& frontend, ApiRequest request);
  // Writes a comment if a stream has written nothing since `since`. Returns false when the call has
  // ended or does not stream.
  bool KeepAlive(Time since, Time now);

 private:
  class Part;

  void OnDelta(size_t prompt, GenerationDelta delta);
  void OnEnd(const GenerationEnd& end);
  void Keep(const std::shared_ptr<Generation>& generation);
  void CancelAll(const Status& why);
  void Fail(const Status& status);
  bool EndByDeadline(const Status& status);
  void Complete();
  void AddDelta(size_t prompt, GenerationDelta delta);
  void AddPrompt(size_t prompt, bool first, GenerationDelta& delta);
  void AddFirstEvents();
  void BeginStream();
  void WriteEvents();

  const std::unique_ptr<ApiAnswer> answer_;
  const bool stream_;
  const bool include_reasoning_;
  const size_t samples_;  // per prompt
  const std::vector<std::string> prompts_;
  const bool prompt_only_;
  const bool needs_all_;  // a part of the answer is of no use
  const bool with_logprobs_;
  const std::shared_ptr<HttpExchange> http_;

  std::mutex mutex_;  // guards the following members and the order of events
  std::vector<std::weak_ptr<Generation>> generations_;
  std::vector<ApiChoice> choices_;      // sorted by prompt, then sample
  std::vector<bool> begun_;             // per choice: its first output has arrived
  std::vector<int32_t> prompt_tokens_;  // per prompt, once known
  std::vector<int32_t> cached_tokens_;  // of these
  std::vector<int64_t> echoed_;         // per prompt: the characters of `prompts_`
  // Per prompt: for all of its choices.
  std::vector<std::vector<TokenLogprobs>> prompt_logprobs_;
  size_t running_;  // number of prompts that have not ended
  GenerationEnd total_;
  GenerationEnd so_far_;
  Status failure_;
  bool begun_stream_ = false;      // the head of the stream was sent
  bool has_first_events_ = false;  // those that come before all others are in events_ or written
  std::string events_;             // of the stream, not yet written
  bool ended_ = false;
  Time last_write_{};
};

// Answers the request with an error in the form of the API.
void ReplyError(HttpExchange& http, const Status& status, const std::string& body);

}  // namespace baton::router
