#include "tests/unit/cluster/random_values.h"

#include <algorithm>
#include <chrono>
#include <variant>

#include "common/cluster/request_fields.h"
#include "common/cluster/sampling_fields.h"

namespace baton {

int64_t RandomValues::Between(int64_t low, int64_t high) {
  return std::uniform_int_distribution<int64_t>(low, high)(random_);
}

std::string RandomValues::Text() {
  std::string text(static_cast<size_t>(Between(1, 20)), ' ');
  for (char& c : text) c = static_cast<char>(Between('a', 'z'));
  return text;
}

std::vector<TokenId> RandomValues::Tokens() {
  std::vector<TokenId> tokens(static_cast<size_t>(Between(1, 50)));
  for (TokenId& token : tokens) token = Count();
  return tokens;
}

Status RandomValues::Error() {
  const auto code = static_cast<StatusCode>(Between(1, 16));
  return Status(code, Text());
}

Peer RandomValues::AnyPeer() {
  return {WorkerId(Text()), BootId(Any()), Text()};
}

SamplingParams RandomValues::Sampling() {
  SamplingParams out;
  for (const SamplingField& field : kSamplingFields) out.*field.value = Float();
  out.top_k = Count();
  out.seed = Any();
  out.top_logprobs = Count();
  for (TokenId token = 0; token < Between(1, 5); ++token)
    out.logit_bias.push_back({token, Float()});
  return out;
}

DispatchCommand RandomValues::Dispatch(RequestKind kind, Time now) {
  DispatchCommand out;
  Request& request = out.request;
  request.id = RequestId(Any());
  request.epoch = Epoch(static_cast<uint32_t>(Count()));
  request.kind = kind;
  request.tokens = Tokens();
  request.prompt_length = Count();
  request.samples = Count();
  request.first_sample = Count();
  request.sampling = Sampling();
  request.max_tokens = Count();
  request.min_tokens = Count();
  request.stop_tokens = Tokens();
  request.prompt_logprobs = static_cast<int32_t>(Between(-1, 20));
  request.pooling = static_cast<Pooling>(Between(0, 3));
  request.labels = Tokens();
  for (const PassedField& field : kPassedFields) {
    std::visit([&](const auto member) { Set(request.*member); }, field.value);
  }
  request.client_tag = Any();
  request.arrival = now;
  request.age = std::chrono::milliseconds(Count());
  if (Bool()) request.deadline = now + std::chrono::milliseconds(Count());
  if (kind == RequestKind::kServe) return out;
  request.peer_first = Bool();
  request.pinned = Bool();
  out.session = SessionId(Any());
  out.peer = AnyPeer();
  return out;
}

WorkerLoad RandomValues::Load() {
  WorkerLoad out;
  EngineLoad& engine = out.engine;
  for (int32_t* count : {&engine.running,
                         &engine.waiting,
                         &engine.awaiting_kv,
                         &engine.blocks_total,
                         &engine.blocks_free,
                         &engine.blocks_expected,
                         &engine.blocks_cached,
                         &engine.blocks_leaked}) {
    *count = Count();
  }
  for (int64_t* count : {&engine.queued_tokens,
                         &engine.prompt_tokens,
                         &engine.cached_tokens,
                         &engine.output_tokens,
                         &engine.preemptions,
                         &engine.drafts,
                         &engine.accepted_drafts}) {
    *count = Between(1, INT64_MAX);
  }
  for (double* ms : {&engine.step_ms_base,
                     &engine.step_ms_per_token,
                     &engine.step_ms_per_token_context,
                     &engine.step_ms_per_prompt_token,
                     &engine.step_ms_per_prompt_token_context}) {
    *ms = Double();
  }
  for (int64_t i = Between(1, 3); i > 0; --i) {
    RankTimes& rank = engine.ranks.emplace_back();
    rank.steps = Between(1, INT64_MAX);
    rank.step_seconds = Double();
    if (Bool()) rank.exchange_seconds = Double();
  }
  out.digest = Hash();
  out.digest_sequence = Any();
  for (int64_t i = Between(1, 3); i > 0; --i) {
    out.peers[WorkerId(Text())] = {.transport = Text(),
                                   .bytes = Any(),
                                   .transfers = Any(),
                                   .bytes_per_second = Double(),
                                   .not_taken = Text(),
                                   .writes = Any(),
                                   .resent_blocks = Any(),
                                   .checksum_errors = Any(),
                                   .fences = Any(),
                                   .open = static_cast<uint32_t>(Any()),
                                   .quarantined_blocks = static_cast<uint32_t>(Any()),
                                   .oldest_ms = Double()};
  }
  for (int64_t i = Between(1, 3); i > 0; --i) {
    out.cache_groups.push_back(
        {.name = Text(), .layers = Count(), .bytes = Any(), .blocks_held = Between(1, INT64_MAX)});
  }
  out.blocks_quarantined = Count();
  out.draining = Bool();
  return out;
}

WorkerReport RandomValues::Report() {
  WorkerReport out;
  out.load = Load();
  for (int64_t i = Between(1, 3); i > 0; --i) {
    TokenOutput token;
    token.cached_tokens = Count();
    token.id = RequestId(Any());
    token.epoch = Epoch(static_cast<uint32_t>(Count()));
    token.sample = Count();
    token.index = Count();
    token.token = {Count(), -Float(), {{Count(), -Float()}, {Count(), -Float()}}};
    token.finish = static_cast<FinishReason>(Between(0, 3));
    token.pooled = {Float(), -Float()};
    token.prompt = {{Count(), -Float(), {}}, {Count(), -Float(), {{Count(), -Float()}}}};
    out.tokens.push_back(token);
  }
  for (int outcome = 0; outcome < 4; ++outcome) {
    HandoffReport handoff;
    handoff.id = RequestId(Any());
    handoff.epoch = Epoch(static_cast<uint32_t>(Count()));
    handoff.outcome = static_cast<HandoffReport::Outcome>(outcome);
    const bool failed = handoff.outcome == HandoffReport::Outcome::kRefused ||
                        handoff.outcome == HandoffReport::Outcome::kFailed;
    if (failed) handoff.status = Error();
    handoff.bytes = Any();
    handoff.transfer = Micros();
    handoff.bytes_per_second = Double();
    handoff.transport = Text();
    handoff.reused_blocks = Count();
    out.handoffs.push_back(handoff);
  }
  out.finished.push_back(
      {RequestId(Any()), Epoch(static_cast<uint32_t>(Count())), {Micros(), Micros(), Count()}});
  out.failed.push_back({RequestId(Any()), Epoch(static_cast<uint32_t>(Count())), Error(), Bool()});
  for (int kind = 0; kind < 3; ++kind) {
    out.cache_events.push_back({Any(), static_cast<CacheEvent::Kind>(kind), {Hash(), Hash()}});
  }
  out.drain = Bool();
  return out;
}

Welcome RandomValues::AnyWelcome() {
  Welcome out;
  out.router_id = Text();
  out.router_tag = Any();
  out.heartbeat = std::chrono::milliseconds(Count());
  return out;
}

WorkerInfo RandomValues::Info() {
  WorkerInfo out;
  out.id = WorkerId(Text());
  out.boot = BootId(Any());
  out.can_prefill = true;
  out.can_decode = true;
  out.model = Text();
  out.fingerprint = Hash();
  out.shape = Hash();
  out.tokenizer = Hash();
  out.weights = Hash();
  out.secret_probe = Hash();
  out.kv_layout = Text();
  out.kv_address = Text();
  out.admin_address = Text();
  out.device = Text();
  out.program_version = Text();
  out.deterministic = random_() % 2 == 0;
  out.block_tokens = Count();
  out.window = Count();
  out.window.chunked = random_() % 2 == 0;
  out.blocks = Count();
  out.max_sequences = Count();
  out.max_step_tokens = Count();
  out.context_length = Count();
  out.vocabulary = Count();
  out.itl_target = Micros();
  return out;
}

std::vector<WorkerCommand> RandomValues::Commands(Time now) {
  const auto id = [this] { return RequestId(Any()); };
  const auto epoch = [this] { return Epoch(static_cast<uint32_t>(Count())); };
  std::vector<WorkerCommand> out;
  for (const RequestKind kind :
       {RequestKind::kServe, RequestKind::kPrefill, RequestKind::kDecode}) {
    out.emplace_back(Dispatch(kind, now));
  }
  out.emplace_back(RedirectCommand{id(), epoch(), SessionId(Any()), epoch(), AnyPeer(), Bool()});
  out.emplace_back(CancelCommand{id(), epoch(), Bool()});
  out.emplace_back(StopSampleCommand{id(), epoch(), Count()});
  out.emplace_back(ConnectCommand{AnyPeer()});
  out.emplace_back(SnapshotCommand{Bool()});
  out.emplace_back(DrainWorkerCommand{Bool()});
  return out;
}

}  // namespace baton
