#include "router/operators/admin_service.h"

#include <algorithm>
#include <utility>

#include <google/protobuf/util/json_util.h>

#include "common/app/version.h"
#include "common/log/log.h"
#include "common/rpc/remote_client.h"
#include "common/rpc/rpc_status.h"
#include "router/operators/operator_generation_service.h"
#include "router/request_error.h"

namespace baton::router {
namespace {

constexpr size_t kMaxCallers = 50;
constexpr size_t kMaxRefusedPeers = 50;

// Each action of an operator: who, what, from where.
const Logger kAudit("audit");

std::string RolesOf(const WorkerInfo& info) {
  if (info.can_prefill && info.can_decode) return "prefill+decode";
  return info.can_prefill ? "prefill" : "decode";
}

void FillWorker(const WorkerRecord& worker, Time now, admin::v1::WorkerStatus& out) {
  const EngineLoad& stats = worker.load.engine;
  out.set_worker_id(worker.info.id.value());
  out.set_roles(RolesOf(worker.info));
  out.set_state(std::string(Name(worker.state)));
  out.set_running(stats.running);
  out.set_waiting(stats.waiting);
  out.set_awaiting_kv(stats.awaiting_kv);
  out.set_queued_tokens(stats.queued_tokens);
  out.set_blocks_total(stats.blocks_total);
  out.set_blocks_free(stats.blocks_free);
  out.set_blocks_cached(stats.blocks_cached);
  out.set_blocks_leaked(stats.blocks_leaked);
  out.set_preemptions(stats.preemptions);
  out.set_blocks_quarantined(worker.load.blocks_quarantined);
  out.set_step_ms_base(stats.step_ms_base);
  out.set_step_ms_per_token(stats.step_ms_per_token);
  for (const auto& [peer, traffic] : worker.load.peers) {
    admin::v1::TransportStatus& transport = *out.add_transports();
    transport.set_peer(peer.value());
    transport.set_transport(traffic.transport);
    transport.set_bytes(traffic.bytes);
    transport.set_transfers(traffic.transfers);
    transport.set_gigabytes_per_second(traffic.bytes_per_second / 1e9);
    transport.set_not_taken(traffic.not_taken);
    transport.set_writes(traffic.writes);
    transport.set_resent_blocks(traffic.resent_blocks);
    transport.set_checksum_errors(traffic.checksum_errors);
    transport.set_fences(traffic.fences);
    transport.set_open(traffic.open);
    transport.set_quarantined_blocks(traffic.quarantined_blocks);
    transport.set_oldest_ms(traffic.oldest_ms);
  }
  out.set_heartbeat_age_ms(ToMillis(now - worker.last_heard));
  out.set_admin_address(worker.info.admin_address);
  out.set_device(worker.info.device);
  out.set_deterministic(worker.info.deterministic);
  out.set_version(worker.info.program_version);
  out.set_address(worker.info.address);
  out.set_prompt_tokens_per_second(worker.prompt_tokens_per_second);
  out.set_output_tokens_per_second(worker.output_tokens_per_second);
  for (const RankMeans& rank : worker.ranks) {
    admin::v1::RankStatus& status = *out.add_ranks();
    status.set_step_ms(rank.step_ms);
    if (rank.exchange_ms) status.set_exchange_ms(*rank.exchange_ms);
  }
  if (stats.drafts > 0) {
    const auto accepted = static_cast<double>(stats.accepted_drafts);
    out.set_draft_acceptance(accepted / static_cast<double>(stats.drafts));
  }
  for (const CacheGroupLoad& group : worker.load.cache_groups) {
    admin::v1::CacheGroupStatus& status = *out.add_cache_groups();
    status.set_name(group.name);
    status.set_layers(group.layers);
    status.set_bytes(group.bytes);
    status.set_blocks_held(group.blocks_held);
  }
  const auto prompt = static_cast<double>(stats.cached_tokens + stats.prompt_tokens);
  out.set_cache_hit_rate(prompt > 0 ? static_cast<double>(stats.cached_tokens) / prompt : 0);
}

void FillCaller(const CallerUsage& usage, admin::v1::CallerStatus& out) {
  out.set_id(usage.id);
  out.set_running(usage.running);
  out.set_requests(usage.requests);
  out.set_tokens(usage.tokens);
  for (const auto& [code, count] : usage.errors) {
    (*out.mutable_errors())[absl::StatusCodeToString(code)] = count;
  }
}

void FillPairs(const RouterCore& core, Time now, admin::v1::ClusterStatus& out) {
  const auto id_of = [&](WorkerSlot slot) { return core.workers().record(slot).info.id.value(); };
  for (const auto& [pair, failing] : core.pairs().failing()) {
    admin::v1::FailingPair& entry = *out.add_failing_pairs();
    entry.set_prefill_worker(id_of(pair.first));
    entry.set_decode_worker(id_of(pair.second));
    entry.set_failures(failing.failures);
    entry.set_reason(std::string(Message(failing.why)));
    entry.set_age_ms(ToMillis(now - failing.last));
    entry.set_avoided_ms(std::max(0.0, ToMillis(failing.avoided_until - now)));
  }
}

}  // namespace

AdminService::AdminService(Identity identity,
                           const CallGate& gate,
                           CoreLoop& core,
                           RequestFrontend& frontend,
                           const Refusals& refusals,
                           const RouterProbe& probe,
                           const Clock& clock,
                           double replay_sample)
    : identity_(std::move(identity)),
      gate_(gate),
      core_(core),
      frontend_(frontend),
      refusals_(refusals),
      probe_(probe),
      started_(clock.Now()),
      replay_sample_(replay_sample) {}

void AdminService::Fill(const RouterCore& core, Time now, admin::v1::ClusterStatus& out) const {
  const CoreCounts counts = core.Counts();
  out.set_router_id(identity_.router_id);
  out.set_model(identity_.model);
  out.set_version(std::string(Version()));
  out.set_uptime_seconds(ToSeconds(now - started_));
  for (const WorkerSlot slot : core.workers().slots()) {
    FillWorker(core.workers().record(slot), now, *out.add_workers());
  }
  for (const RefusedJoin& refused : core.refused_joins().entries()) {
    admin::v1::RefusedJoin& entry = *out.add_refused_joins();
    entry.set_worker_id(refused.worker.value());
    entry.set_address(refused.address);
    entry.set_reason(refused.reason);
    entry.set_attempts(refused.attempts);
    entry.set_age_ms(ToMillis(now - refused.last));
  }
  FillPairs(core, now, out);
  out.set_stalled_seconds(ToSeconds(core.stalled()));
  for (const CallerUsage& usage : frontend_.callers().Top(kMaxCallers))
    FillCaller(usage, *out.add_callers());
  // Refusals have a clock of their own: the system's.
  const Time present = SteadyClock().Now();
  for (const RefusedPeer& refused : refusals_.Latest(kMaxRefusedPeers)) {
    admin::v1::RefusedPeer& entry = *out.add_refused_peers();
    entry.set_port(refused.port);
    entry.set_address(refused.address);
    entry.set_reason(refused.reason);
    entry.set_refusals(refused.refusals);
    entry.set_age_ms(ToMillis(present - refused.last));
  }
  out.set_requests_running(counts.running);
  out.set_requests_waiting(counts.waiting);
  out.set_index_entries(counts.index_entries);
  out.set_requests_total(probe_.requests_total());
  out.set_requests_failed(probe_.requests_failed());
  out.set_retries(probe_.retries());
  if (replay_sample_ > 0) {
    admin::v1::ReplayStatus& replays = *out.mutable_replays();
    const ReplayCounts counted = probe_.replays();
    replays.set_checked(counted.checked);
    replays.set_mismatches(counted.mismatches);
    for (int i = 0; i < kReplaySkips; ++i) {
      const std::string reason(Name(static_cast<ReplaySkip>(i)));
      (*replays.mutable_skipped())[reason] = counted.skipped[i];
    }
    replays.set_sample(replay_sample_);
    replays.set_waiting(static_cast<int32_t>(core.replays().waiting()));
    replays.set_running(static_cast<int32_t>(core.replays().running().size()));
  }
  const LatencyPercentiles latency = probe_.latencies();
  out.set_ttft_p50_ms(latency.ttft_p50_ms);
  out.set_ttft_p99_ms(latency.ttft_p99_ms);
  out.set_tpot_p50_ms(latency.tpot_p50_ms);
  out.set_tpot_p99_ms(latency.tpot_p99_ms);
}

grpc::ServerUnaryReactor* AdminService::GetStatus(grpc::CallbackServerContext* context,
                                                  const admin::v1::GetStatusRequest*,
                                                  admin::v1::ClusterStatus* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  if (const auto operator_id = gate_.Admit(*context); !operator_id.ok()) {
    reactor->Finish(ToGrpc(operator_id.status()));
    return reactor;
  }
  core_.Post([this, reactor, response](RouterCore& core, Time now) {
    Fill(core, now, *response);
    reactor->Finish(grpc::Status::OK);
  });
  return reactor;
}

grpc::ServerUnaryReactor* AdminService::DrainWorker(grpc::CallbackServerContext* context,
                                                    const admin::v1::DrainWorkerRequest* request,
                                                    admin::v1::DrainWorkerResponse*) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  const StatusOr<std::string> operator_id = gate_.Admit(*context);
  if (!operator_id.ok()) {
    reactor->Finish(ToGrpc(operator_id.status()));
    return reactor;
  }
  kAudit.Info("DrainWorker {}{} by {} from {}",
              Shown(request->worker_id()),
              request->keep() ? " (keep)" : "",
              *operator_id,
              ClientOf(*context)->address());
  core_.Post(
      [reactor, id = WorkerId(request->worker_id()), keep = request->keep()](
          RouterCore& core, Time now) { reactor->Finish(ToGrpc(core.Drain(id, keep, now))); });
  return reactor;
}

grpc::ServerUnaryReactor* AdminService::GenerateOn(grpc::CallbackServerContext* context,
                                                   const admin::v1::GenerateOnRequest* request,
                                                   admin::v1::GenerateOnResponse* response) {
  const StatusOr<std::string> operator_id = gate_.Admit(*context);
  if (!operator_id.ok()) {
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(ToGrpc(operator_id.status()));
    return reactor;
  }
  kAudit.Info("GenerateOn prefill worker '{}' and decode worker '{}' by {} from {}",
              Shown(request->prefill_worker()),
              Shown(request->decode_worker()),
              *operator_id,
              ClientOf(*context)->address());
  return OperatorGeneration::Begin(*context, *request, *response, frontend_);
}

void AdminService::ResetPrefixCache(const std::string& operator_id) {
  kAudit.Info("ResetPrefixCache by {}", operator_id);
  core_.Post([](RouterCore& core, Time now) { core.ResetCaches(now); });
}

StatusOr<std::string> AdminService::StatusJson() const {
  BATON_ASSIGN_OR_RETURN(const admin::v1::ClusterStatus status,
                         core_.Query([this](const RouterCore& core, Time now) {
                           admin::v1::ClusterStatus out;
                           Fill(core, now, out);
                           return out;
                         }));
  google::protobuf::util::JsonPrintOptions options;
  options.always_print_primitive_fields = true;
  options.preserve_proto_field_names = true;
  std::string json;
  if (!google::protobuf::util::MessageToJsonString(status, &json, options).ok()) {
    return Status(StatusCode::kInternal, "the status cannot be converted to JSON");
  }
  return json;
}

}  // namespace baton::router
