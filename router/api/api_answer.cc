#include "router/api/api_answer.h"

#include <algorithm>

namespace baton::router {

void ApiChoice::Add(const GenerationDelta& delta) {
  text += delta.text;
  AddEvents(delta);
  logprobs.insert(logprobs.end(), delta.logprobs.begin(), delta.logprobs.end());
  if (!delta.prompt_logprobs.empty()) prompt_logprobs = delta.prompt_logprobs;
  if (!delta.pooled.empty()) pooled = delta.pooled;
  finish = delta.finish;
  stop_index = delta.stop_index;
  stop_token = delta.stop_token;
  if (finish != FinishReason::kNone) output.End(/*cut=*/finish == FinishReason::kLength);
}

// Each token follows its events, which tell where its logprobs belong.
void ApiChoice::AddEvents(const GenerationDelta& delta) {
  size_t added = 0;
  const auto add_until = [&](size_t end) {
    for (; added < std::min(end, delta.events.size()); ++added) output.Add(delta.events[added]);
  };
  for (const TokenLogprobs& token : delta.logprobs) {
    const size_t before = added;
    add_until(token.events);
    output.AddLogprobs(token, /*held=*/added == before);
  }
  add_until(delta.events.size());
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
