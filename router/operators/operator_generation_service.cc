#include "router/operators/operator_generation_service.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "common/rpc/rpc_status.h"

namespace baton::router {
namespace {

const Status& OperatorLeft() {
  static const Status left(StatusCode::kCancelled, "the operator left");
  return left;
}

StatusOr<GenerationRequest> RequestOf(const admin::v1::GenerateOnRequest& in,
                                      std::chrono::system_clock::time_point deadline) {
  if (in.decode_worker().empty()) {
    return InvalidArgument(
        "decode_worker is empty; it must be the id of a worker that decodes, as in `baton status`");
  }
  if (in.max_tokens() < 1) {
    return InvalidArgument("max_tokens is {}; it must be at least 1", in.max_tokens());
  }
  GenerationRequest out;
  if (in.raw()) {
    out.input = in.prompt();
  } else {
    out.input.emplace<ChatInput>().turns.push_back({"user", in.prompt(), ""});
  }
  out.max_tokens = in.max_tokens();
  out.sampling.temperature = in.has_seed() ? 1.0F : 0.0F;
  if (in.has_seed()) out.sampling.seed = in.seed();
  out.timeout = std::chrono::milliseconds(in.timeout_ms());
  if (deadline != std::chrono::system_clock::time_point::max()) {
    const Duration left = std::max<Duration>(std::chrono::milliseconds(1),
                                             deadline - std::chrono::system_clock::now());
    out.timeout = in.timeout_ms() > 0 ? std::min(out.timeout, left) : left;
  }
  out.pinned = PinnedWorkers{WorkerId(in.prefill_worker()), WorkerId(in.decode_worker())};
  return out;
}

}  // namespace

OperatorGeneration* OperatorGeneration::Begin(const grpc::CallbackServerContext& context,
                                              const admin::v1::GenerateOnRequest& request,
                                              admin::v1::GenerateOnResponse& response,
                                              RequestFrontend& frontend) {
  const std::shared_ptr<OperatorGeneration> call(new OperatorGeneration(response));
  call->self_ = call;
  StatusOr<GenerationRequest> generation = RequestOf(request, context.deadline());
  if (!generation.ok()) {
    call->Finish(ToGrpc(generation.status()));
    return call.get();
  }
  auto running = frontend.Start(*std::move(generation), call);
  bool left;
  {
    std::lock_guard lock(call->mutex_);
    left = call->left_;
    call->generation_ = running;
  }
  if (left && running != nullptr) running->Cancel(OperatorLeft());
  return call.get();
}

void OperatorGeneration::OnDelta(GenerationDelta delta) {
  response_.mutable_token_ids()->Add(delta.tokens.begin(), delta.tokens.end());
  if (delta.finish == FinishReason::kNone) return;
  response_.set_finish(delta.finish == FinishReason::kStop ? "stop" : "length");
}

void OperatorGeneration::OnEnd(GenerationEnd end) {
  response_.set_prompt_tokens(end.prompt_tokens);
  response_.set_cached_tokens(end.account.cached_tokens);
  Finish(ToGrpc(end.status));
}

void OperatorGeneration::OnCancel() {
  std::shared_ptr<Generation> generation;
  {
    std::lock_guard lock(mutex_);
    left_ = true;
    generation = generation_;
  }
  if (generation != nullptr) generation->Cancel(OperatorLeft());
}

void OperatorGeneration::OnDone() {
  std::shared_ptr<OperatorGeneration> self;
  std::lock_guard lock(mutex_);
  generation_.reset();
  self = std::move(self_);
}

}  // namespace baton::router
