#include "common/engine/grammar_queue.h"

#include <span>
#include <utility>

namespace baton {

GrammarQueue::GrammarQueue(GrammarCompiler* compiler, SequenceMasks& masks, Inbox& inbox)
    : compiler_(compiler), gate_(std::make_shared<Gate>()) {
  gate_->inbox = &inbox;
  gate_->masks = &masks;
}

GrammarQueue::~GrammarQueue() {
  std::lock_guard lock(gate_->mutex);
  gate_->inbox = nullptr;
}

void GrammarQueue::Add(Request request) {
  const RequestKey key{request.id, request.epoch};
  const auto [at, added] = waiting_.try_emplace(key);
  if (!added) return;
  at->second.request = std::move(request);
  const Request& waiting = at->second.request;
  if (compiler_ == nullptr) {
    std::lock_guard lock(gate_->mutex);
    return gate_->Push(
        key,
        MakeStatus(StatusCode::kUnimplemented,
                   "this worker cannot constrain output: it has no grammar compiler"));
  }
  compiler_->Compile(waiting.grammar,
                     waiting.client_tag,
                     at->second.wanted,
                     [gate = gate_, key, output = OutputOf(waiting)](CompiledGrammar grammar) {
                       OnCompiled(gate, key, output, std::move(grammar));
                     });
}

// The scheduler checks the request later, so its numbers may be wrong.
std::optional<GrammarQueue::Output> GrammarQueue::OutputOf(const Request& request) {
  if (request.kind == RequestKind::kDecode || request.prompt_length < 0 ||
      std::cmp_greater(request.prompt_length, request.tokens.size())) {
    return std::nullopt;
  }
  const auto output = std::span(request.tokens.begin(), request.tokens.end())
                          .subspan(static_cast<size_t>(request.prompt_length));
  return Output{request.stop_tokens, {output.begin(), output.end()}};
}

void GrammarQueue::OnCompiled(const std::shared_ptr<Gate>& gate,
                              const RequestKey& key,
                              const std::optional<Output>& output,
                              CompiledGrammar grammar) {
  std::lock_guard lock(gate->mutex);
  if (gate->inbox == nullptr) return;
  if (!grammar.ok()) return gate->Push(key, grammar.status());
  if (!output.has_value()) return gate->Push(key, Constraint{*std::move(grammar), nullptr});
  ++gate->first_masks;
  gate->masks->First(*grammar,
                     output->stop_tokens,
                     output->tokens,
                     [gate, key, grammar = *grammar](std::shared_ptr<SequenceMask> mask) {
                       std::lock_guard done(gate->mutex);
                       gate->Push(key, Constraint{grammar, std::move(mask)});
                     });
}

void GrammarQueue::Gate::Push(const RequestKey& key, StatusOr<Constraint> constraint) {
  if (inbox != nullptr) inbox->Push(Inbox::Compiled{key, std::move(constraint)});
}

std::optional<StatusOr<GrammarQueue::Ready>> GrammarQueue::Take(Inbox::Compiled compiled) {
  if (compiled.constraint.ok() && compiled.constraint->first_mask != nullptr) --gate_->first_masks;
  const auto found = waiting_.find(compiled.key);
  if (found == waiting_.end()) return std::nullopt;
  Waiting waiting = std::move(found->second);
  waiting_.erase(found);
  if (!compiled.constraint.ok()) return StatusOr<Ready>(compiled.constraint.status());
  const auto& first_mask = compiled.constraint->first_mask;
  if (first_mask != nullptr) {
    const Request& request = waiting.request;
    const Status& failure = first_mask->FailureAfter(request.tokens.size() -
                                                     static_cast<size_t>(request.prompt_length));
    if (!failure.ok()) return StatusOr<Ready>(failure);
  }
  return StatusOr<Ready>(Ready{
      std::move(waiting.request), *std::move(compiled.constraint), std::move(waiting.stopped)});
}

void GrammarQueue::StopSample(const RequestKey& key, int32_t sample) {
  const auto found = waiting_.find(key);
  if (found != waiting_.end()) found->second.stopped.push_back(sample);
}

void GrammarQueue::PeerReady(const RequestKey& key) {
  const auto found = waiting_.find(key);
  if (found != waiting_.end()) found->second.request.peer_first = false;
}

std::vector<RequestKey> GrammarQueue::TakeExpired(Time now, bool all) {
  std::vector<RequestKey> expired;
  for (const auto& [key, waiting] : waiting_) {
    if (all || waiting.request.deadline <= now) expired.push_back(key);
  }
  for (const RequestKey& key : expired) waiting_.erase(key);
  return expired;
}

}  // namespace baton
