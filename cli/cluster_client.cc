#include "cli/cluster_client.h"

#include <google/protobuf/util/json_util.h>
#include <grpcpp/client_context.h>

#include "cli/endpoint_channel.h"
#include "cli/reachability.h"
#include "common/base/check.h"
#include "common/base/clock.h"
#include "common/rpc/rpc_status.h"
#include "proto/admin.grpc.pb.h"

namespace baton {
namespace {

constexpr auto kCallLimit = std::chrono::seconds(10);

WorkerSummary FromProto(const admin::v1::WorkerStatus& from) {
  WorkerSummary worker;
  worker.id = from.worker_id();
  worker.roles = from.roles();
  worker.state = from.state();
  worker.running = from.running();
  worker.waiting = from.waiting();
  worker.awaiting_kv = from.awaiting_kv();
  worker.blocks_total = from.blocks_total();
  worker.blocks_free = from.blocks_free();
  worker.blocks_leaked = from.blocks_leaked();
  worker.blocks_quarantined = from.blocks_quarantined();
  worker.cache_hit_rate = from.cache_hit_rate();
  if (from.has_draft_acceptance()) worker.draft_acceptance = from.draft_acceptance();
  worker.prompt_tokens_per_second = from.prompt_tokens_per_second();
  worker.output_tokens_per_second = from.output_tokens_per_second();
  worker.heartbeat_age_ms = from.heartbeat_age_ms();
  worker.address = from.address();
  worker.http_address = from.admin_address();
  worker.device = from.device();
  worker.deterministic = from.deterministic();
  worker.version = from.version();
  for (const auto& rank : from.ranks()) {
    RankSummary& summary = worker.ranks.emplace_back();
    summary.step_ms = rank.step_ms();
    if (rank.has_exchange_ms()) summary.exchange_ms = rank.exchange_ms();
  }
  for (const auto& group : from.cache_groups()) {
    worker.cache_groups.push_back(
        {group.name(), group.layers(), group.bytes(), group.blocks_held()});
  }
  for (const auto& transport : from.transports()) {
    worker.transports.push_back({transport.peer(),
                                 transport.transport(),
                                 transport.bytes(),
                                 transport.transfers(),
                                 transport.gigabytes_per_second(),
                                 transport.not_taken(),
                                 transport.writes(),
                                 transport.resent_blocks(),
                                 transport.checksum_errors(),
                                 transport.fences(),
                                 transport.open(),
                                 transport.quarantined_blocks(),
                                 transport.oldest_ms()});
  }
  return worker;
}

ClusterSummary FromProto(const admin::v1::ClusterStatus& from) {
  ClusterSummary cluster;
  cluster.router = from.router_id();
  cluster.model = from.model();
  cluster.version = from.version();
  cluster.uptime_seconds = from.uptime_seconds();
  cluster.running = from.requests_running();
  cluster.waiting = from.requests_waiting();
  cluster.total = from.requests_total();
  cluster.failed = from.requests_failed();
  cluster.retries = from.retries();
  cluster.ttft_p50_ms = from.ttft_p50_ms();
  cluster.ttft_p99_ms = from.ttft_p99_ms();
  cluster.tpot_p50_ms = from.tpot_p50_ms();
  cluster.tpot_p99_ms = from.tpot_p99_ms();
  cluster.stalled_seconds = from.stalled_seconds();
  if (from.has_replays()) {
    const admin::v1::ReplayStatus& replays = from.replays();
    cluster.replays = ReplaySummary{replays.sample(),
                                    replays.checked(),
                                    replays.mismatches(),
                                    {replays.skipped().begin(), replays.skipped().end()},
                                    replays.waiting(),
                                    replays.running()};
  }
  for (const auto& worker : from.workers()) cluster.workers.push_back(FromProto(worker));
  for (const auto& refused : from.refused_joins()) {
    cluster.refused.push_back({refused.worker_id(),
                               refused.address(),
                               refused.reason(),
                               refused.attempts(),
                               refused.age_ms()});
  }
  for (const auto& pair : from.failing_pairs()) {
    cluster.failing_pairs.push_back({pair.prefill_worker(),
                                     pair.decode_worker(),
                                     pair.failures(),
                                     pair.reason(),
                                     pair.age_ms(),
                                     pair.avoided_ms()});
  }
  for (const auto& refused : from.refused_peers()) {
    cluster.refused_peers.push_back({refused.port(),
                                     refused.address(),
                                     refused.reason(),
                                     refused.refusals(),
                                     refused.age_ms()});
  }
  for (const auto& caller : from.callers()) {
    cluster.callers.push_back({caller.id(),
                               caller.running(),
                               caller.requests(),
                               caller.tokens(),
                               {caller.errors().begin(), caller.errors().end()}});
  }
  google::protobuf::util::JsonPrintOptions options;
  options.always_print_primitive_fields = true;
  options.preserve_proto_field_names = true;
  const auto printed = google::protobuf::util::MessageToJsonString(from, &cluster.json, options);
  BATON_CHECK(printed.ok(), "ClusterStatus cannot be printed as JSON");
  return cluster;
}

void SetLimit(grpc::ClientContext& context) {
  context.set_deadline(std::chrono::system_clock::now() + kCallLimit);
}

}  // namespace

struct ClusterClient::Impl {
  explicit Impl(const RouterEndpoint& endpoint_in)
      : endpoint(endpoint_in), stub(admin::v1::Admin::NewStub(ChannelTo(endpoint_in))) {}
  const RouterEndpoint endpoint;
  std::unique_ptr<admin::v1::Admin::Stub> stub;
};

ClusterClient::ClusterClient(const RouterEndpoint& endpoint)
    : impl_(std::make_unique<Impl>(endpoint)) {}
ClusterClient::~ClusterClient() = default;

StatusOr<ClusterSummary> ClusterClient::GetStatus() {
  grpc::ClientContext context;
  AddKey(impl_->endpoint, context);
  SetLimit(context);
  admin::v1::ClusterStatus response;
  const Status got = FromGrpc(impl_->stub->GetStatus(&context, {}, &response));
  if (!got.ok()) return ExplainUnreachable(got, impl_->endpoint, kAdminPort);
  return FromProto(response);
}

StatusOr<PinnedAnswer> ClusterClient::GenerateOn(const PinnedCall& call) {
  grpc::ClientContext context;
  AddKey(impl_->endpoint, context);
  context.set_deadline(std::chrono::system_clock::now() +
                       std::chrono::milliseconds(call.timeout_ms) + kCallLimit);
  admin::v1::GenerateOnRequest request;
  request.set_prompt(call.prompt);
  request.set_raw(call.raw);
  request.set_prefill_worker(call.prefill);
  request.set_decode_worker(call.decode);
  request.set_max_tokens(call.max_tokens);
  if (call.seed.has_value()) request.set_seed(*call.seed);
  request.set_timeout_ms(call.timeout_ms);
  admin::v1::GenerateOnResponse response;
  const Status got = FromGrpc(impl_->stub->GenerateOn(&context, request, &response));
  if (!got.ok()) return ExplainUnreachable(got, impl_->endpoint, kAdminPort);
  return PinnedAnswer{{response.token_ids().begin(), response.token_ids().end()},
                      response.finish()};
}

Status ClusterClient::Drain(const std::string& worker_id, bool keep) {
  grpc::ClientContext context;
  AddKey(impl_->endpoint, context);
  SetLimit(context);
  admin::v1::DrainWorkerRequest request;
  request.set_worker_id(worker_id);
  request.set_keep(keep);
  admin::v1::DrainWorkerResponse response;
  return ExplainUnreachable(FromGrpc(impl_->stub->DrainWorker(&context, request, &response)),
                            impl_->endpoint,
                            kAdminPort);
}

}  // namespace baton
