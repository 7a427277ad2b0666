#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "router/api/output_blocks.h"
#include "router/generation.h"

namespace baton::router {

// The output of one sample of one prompt so far.
struct ApiChoice {
  std::string text = {};                 // of a completion
  OutputBlocks output = OutputBlocks();  // of a chat
  std::vector<TokenLogprobs> logprobs = {};
  std::vector<TokenLogprobs> prompt_logprobs = {};
  std::vector<float> pooled = {};  // GenerationDelta::pooled
  FinishReason finish = FinishReason::kNone;
  int32_t stop_index = -1;                           // of the stop string that ended it, or -1
  std::optional<TokenId> stop_token = std::nullopt;  // of the request, that ended it
  bool past_deadline = false;                        // the deadline cut the output off

  void Add(const GenerationDelta& delta);
  void AddEvents(const GenerationDelta& delta);
  void EndAtDeadline();
  // Whether the output has a call that did not fail.
  bool HasCall() const;
};

// A part of the stream of one choice.
struct ApiDelta {
  size_t number = 0;   // of the choice
  bool first = false;  // the first part of this choice
  const GenerationDelta& delta;
  const ApiChoice& choice;  // with this part
  GenerationEnd usage;      // the tokens so far, of all choices
};

// Formats the answer to one request in the form of one API. One instance serves one request; calls
// do not overlap.
class ApiAnswer {
 public:
  virtual ~ApiAnswer() = default;

  // The whole answer.
  virtual std::string Body(const std::vector<ApiChoice>& choices, const GenerationEnd& end) = 0;

  // The events of a stream. Begin comes before the first Delta, End is last. `usage`: so far.
  virtual std::string Begin(const GenerationEnd& usage) = 0;
  virtual std::string Delta(const ApiDelta& delta) = 0;
  virtual std::string End(const std::vector<ApiChoice>& choices, const GenerationEnd& end) = 0;
  // The end of a stream that failed after it had begun.
  virtual std::string Failure(const std::vector<ApiChoice>& choices, const Status& status) = 0;

  // The body of an answer with the HTTP status HttpStatusOf(status).
  virtual std::string Error(const Status& status) = 0;
};

// An answer that is never streamed: of a request that ends with its prompt.
class WholeAnswer : public ApiAnswer {
 public:
  std::string Begin(const GenerationEnd&) final { return ""; }
  std::string Delta(const ApiDelta&) final { return ""; }
  std::string End(const std::vector<ApiChoice>&, const GenerationEnd&) final { return ""; }
  std::string Failure(const std::vector<ApiChoice>&, const Status&) final { return ""; }
};

// The HTTP status of an error.
int HttpStatusOf(const Status& status);

}  // namespace baton::router
