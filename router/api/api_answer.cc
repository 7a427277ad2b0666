#include "router/api/api_answer.h"

#include <algorithm>

namespace baton::router {

void ApiChoice::Add(const GenerationDelta& delta) {
  text += delta.text;
  for (const ChatEvent& event : delta.events) output.Add(event);
  logprobs.insert(logprobs.end(), delta.logprobs.begin(), delta.logprobs.end());
  if (!delta.prompt_logprobs.empty()) prompt_logprobs = delta.prompt_logprobs;
  finish = delta.finish;
  stop_index = delta.stop_index;
  stop_token = delta.stop_token;
  if (finish != FinishReason::kNone) output.End(/*cut=*/finish == FinishReason::kLength);
}

void ApiChoice::EndAtDeadline() {
  if (finish != FinishReason::kNone) return;
  finish = FinishReason::kLength;
  past_deadline = true;
  output.End(/*cut=*/true);
}

bool ApiChoice::HasCall() const {
  return std::ranges::any_of(output.blocks(), [](const ApiBlock& block) {
    return block.kind == ApiBlock::Kind::kCall && block.ended && block.complete;
  });
}

int HttpStatusOf(const Status& status) {
  switch (status.code()) {
    case StatusCode::kOk:
      return 200;
    case StatusCode::kInvalidArgument:
    case StatusCode::kOutOfRange:
    case StatusCode::kFailedPrecondition:
      return 400;
    case StatusCode::kNotFound:
      return 404;
    case StatusCode::kResourceExhausted:
      return 429;
    case StatusCode::kCancelled:
      return 499;
    case StatusCode::kUnavailable:
      return 503;
    case StatusCode::kDeadlineExceeded:
      return 504;
    default:
      return 500;
  }
}

}  // namespace baton::router
