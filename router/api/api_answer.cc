#include "router/api/api_answer.h"

namespace baton::router {

void ApiChoice::Add(const GenerationDelta& delta) {
  text += delta.text;
  for (const ChatEvent& event : delta.events) {
    switch (event.kind) {
      case ChatEvent::Kind::kContent:
        text += event.text;
        break;
      case ChatEvent::Kind::kReasoning:
        reasoning += event.text;
        break;
      case ChatEvent::Kind::kCallBegin:
        calls.push_back({event.id, event.text, ""});
        break;
      case ChatEvent::Kind::kArguments:
        calls.back().arguments += event.text;
        break;
      case ChatEvent::Kind::kCallEnd:
        break;
      case ChatEvent::Kind::kCallFailed:
        calls.pop_back();
        text += event.text;
        break;
    }
  }
  logprobs.insert(logprobs.end(), delta.logprobs.begin(), delta.logprobs.end());
  finish = delta.finish;
  stop_index = delta.stop_index;
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
