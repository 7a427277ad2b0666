#include "router/router_service.h"

#include <unistd.h>

#include <condition_variable>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <utility>

#include <grpcpp/ext/proto_server_reflection_plugin.h>

#include "common/app/rpc_limits.h"
#include "common/base/hash.h"
#include "common/cluster/member_id.h"
#include "common/log/log.h"
#include "common/model/model_identity.h"
#include "common/rpc/reflection_service.h"
#include "common/rpc/rpc_server.h"
#include "router/api/http_api.h"
#include "router/api/openai_answer.h"
#include "router/frontend/request_frontend.h"
#include "router/grpc/generation_service.h"
#include "router/links/worker_link_service.h"
#include "router/operators/admin_service.h"
#include "router/operators/status_page.h"
#include "router/text/model_text.h"

namespace baton::router {
namespace {

constexpr uint64_t kTagMask = ~((uint64_t{1} << 40) - 1);
constexpr Duration kShutdownGrace = std::chrono::milliseconds(200);

const Logger kLog("router");

PolicyKind PolicyOf(const config::RouterConfig& config) {
  switch (config.policy()) {
    case config::RouterConfig::ROUND_ROBIN:
      return PolicyKind::kRoundRobin;
    case config::RouterConfig::LEAST_LOADED:
      return PolicyKind::kLeastLoaded;
    case config::RouterConfig::POWER_OF_TWO:
      return PolicyKind::kPowerOfTwo;
    case config::RouterConfig::PREFIX_AFFINITY:
      return PolicyKind::kPrefixAffinity;
    default:
      return PolicyKind::kCost;
  }
}

std::string NameOf(const config::RouterConfig& config, uint64_t tag) {
  if (!config.router_id().empty()) return config.router_id();
  char host[256] = "router";
  ::gethostname(host, sizeof(host) - 1);
  return fmt::format("router-{}-{:06x}", host, tag >> 40);
}

CoreOptions CoreOptionsOf(const config::RouterConfig& config, const OwnModel& model, uint64_t tag) {
  CoreOptions options;
  options.tag = tag;
  options.model = model;
  options.hash_secret = config.hash_secret();
  options.max_requests = config.max_requests();
  options.local_tokens = config.local_tokens();
  options.index_capacity = static_cast<size_t>(config.index_capacity());
  options.suspect_after = std::chrono::milliseconds(config.suspect_ms());
  options.lost_after = std::chrono::milliseconds(config.lost_ms());
  options.retry.max_attempts = config.max_attempts();
  options.retry.max_worker_losses = config.max_worker_losses();
  options.retry.worker_wait = FromSeconds(config.worker_wait_seconds());
  options.replay = {.sample = config.replay().sample(),
                    .max_running = config.replay().max_running(),
                    .max_waiting = config.replay().max_waiting(),
                    .max_tokens = config.replay().max_tokens()};
  options.policy = PolicyOf(config);
  options.seed = config.seed();
  return options;
}

HttpApiOptions ApiOptionsOf(const config::RouterConfig& config) {
  return {.max_requests = config.max_requests(),
          .keep_alive = FromSeconds(config.sse_keep_alive_seconds()),
          .cors_origins = {config.cors_allow_origins().begin(), config.cors_allow_origins().end()}};
}

// The settings' values of both formats are AUTO, then the formats in their order.
ModelTextOptions TextOptionsOf(const config::RouterConfig& config) {
  ModelTextOptions options;
  options.name = config.model().name();
  options.chat_template = config.chat_template();
  if (config.tool_call_format() != config::ToolCalls::AUTO) {
    options.calls = static_cast<ToolCallFormat>(config.tool_call_format() - 1);
  }
  if (config.reasoning_format() != config::Reasoning::AUTO) {
    options.reasoning = static_cast<ReasoningFormat>(config.reasoning_format() - 1);
  }
  if (config.embedding_pooling() != config::Embedding::AUTO) {
    options.pooling = static_cast<Pooling>(config.embedding_pooling() - 1);
  }
  options.rerank = static_cast<RerankFormat>(config.rerank_format());
  return options;
}
static_assert(config::Embedding::Pooling_MAX - 1 == static_cast<int>(Pooling::kFirst));
static_assert(config::Reranking::Format_MAX == static_cast<int>(RerankFormat::kQwen3));
static_assert(config::ToolCalls::Format_MAX - 1 == static_cast<int>(kLastToolCallFormat));
static_assert(config::Reasoning::Format_MAX - 1 == static_cast<int>(kLastReasoningFormat));

// Checks relations between settings, which the ranges of single settings cannot express.
Status CheckTimes(const config::RouterConfig& config) {
  if (config.suspect_ms() <= config.heartbeat_ms()) {
    return InvalidArgument(
        "suspect_ms is {}; it must be more than heartbeat_ms, which is {}; otherwise every worker "
        "becomes suspect between two heartbeats",
        config.suspect_ms(),
        config.heartbeat_ms());
  }
  if (config.lost_ms() < config.suspect_ms()) {
    return InvalidArgument("lost_ms is {}; it must be at least suspect_ms, which is {}",
                           config.lost_ms(),
                           config.suspect_ms());
  }
  return OkStatus();
}

Status CheckAliases(const config::RouterConfig& config) {
  std::set<std::string> seen;
  for (const std::string& alias : config.model_aliases()) {
    if (alias.empty()) return InvalidArgument("model_aliases has an empty name");
    if (!seen.insert(alias).second) {
      return InvalidArgument("model_aliases has \"{}\" twice; each name must be there once", alias);
    }
  }
  return OkStatus();
}

Status CheckPorts(const config::RouterConfig& config, const ProcessSecurity& security) {
  BATON_RETURN_IF_ERROR(security.CheckPort("listen", config.listen(), PortUsers::kClients));
  BATON_RETURN_IF_ERROR(security.CheckPort(
      "process.http_listen", config.process().http_listen(), PortUsers::kClients));
  BATON_RETURN_IF_ERROR(
      security.CheckPort("admin_listen", config.admin_listen(), PortUsers::kOperators));
  return security.CheckPort("worker_listen", config.worker_listen(), PortUsers::kPeers);
}

ConnectionLimits PeerLimits(const config::RouterConfig& config, const ProcessSecurity& security) {
  ConnectionLimits limits = RpcLimitsOf(config.process());
  security.SecurePeers(limits);
  return limits;
}

StatusOr<OwnModel> OwnModelOf(const config::ModelConfig& config, const ModelText& text) {
  OpenOptions options;
  if (config.load_format() == config::ModelConfig::DUMMY) options.format = LoadFormat::kDummy;
  options.dummy_seed = config.dummy_seed();
  BATON_ASSIGN_OR_RETURN(const ModelIdentity identity, IdentifyModel(config.path(), options));
  if (identity.fingerprint == Hash128()) {
    kLog.Warning(
        "model.path '{}' has no readable weights: only the shape and the tokenizer of joining "
        "workers' models are checked",
        config.path());
  }
  return OwnModel{
      text.name(), text.vocabulary(), identity.shape, identity.tokenizer, identity.fingerprint};
}

// The state that grpc.health.v1 reports: SERVING while workers are ready and the router does not
// drain. Thread-safe.
class Health final {
 public:
  explicit Health(RpcServer& server) : server_(server) { Publish(); }

  void SetReady(bool ready) {
    std::lock_guard lock(mutex_);
    ready_ = ready;
    Publish();
  }
  void SetDraining() {
    std::lock_guard lock(mutex_);
    draining_ = true;
    Publish();
  }
  bool draining() const {
    std::lock_guard lock(mutex_);
    return draining_;
  }

 private:
  void Publish() { server_.SetServing(v1::Generation::service_full_name(), ready_ && !draining_); }

  RpcServer& server_;
  mutable std::mutex mutex_;
  bool ready_ = false;
  bool draining_ = false;
};

// Owns and connects the parts of a running router. The order of declaration is the order of
// construction.
class RouterService final : public Service {
 public:
  RouterService(const config::RouterConfig& config,
                std::unique_ptr<ModelText> text,
                const OwnModel& model,
                const GenerationDefaults& sampling,
                AppContext& context,
                uint64_t tag)
      : grace_(FromSeconds(config.drain_grace_seconds())),
        name_(NameOf(config, tag)),
        text_(std::move(text)),
        probe_(context.metrics),
        core_(std::make_unique<CoreLoop>(CoreOptionsOf(config, model, tag), context.clock, probe_)),
        frontend_(
            FrontendOptions{
                .tag = tag,
                .hash_secret = config.hash_secret(),
                .default_timeout = FromSeconds(config.default_timeout_seconds()),
                .sampling = sampling,
                .tokenizer_threads = static_cast<size_t>(config.tokenizer_threads()),
                .callers = context.security.clients(),
                .aliases = {config.model_aliases().begin(), config.model_aliases().end()}},
            *text_,
            *core_,
            context.clock,
            probe_),
        generation_(
            {context.security.clients(), context.security.refusals(), "grpc"}, frontend_, *core_),
        admin_({name_, text_->name()},
               {context.security.operators(), context.security.refusals(), "admin"},
               *core_,
               frontend_,
               context.security.refusals(),
               probe_,
               context.clock,
               config.replay().sample()),
        worker_links_({name_, tag, std::chrono::milliseconds(config.heartbeat_ms())},
                      *core_,
                      PeerLimits(config, context.security).proofs),
        api_(frontend_, ApiOptionsOf(config)) {
    api_.AddRoutes(context.http);
    context.http.AddRoute("GET", "/", [](const std::shared_ptr<HttpExchange>& exchange) {
      exchange->Reply(200, "text/html; charset=utf-8", std::string(StatusPage()));
    });
    context.http.AddRoute(
        "GET", "/status.json", [this](const std::shared_ptr<HttpExchange>& exchange) {
          const StatusOr<std::string> status = admin_.StatusJson();
          exchange->Reply(status.ok() ? 200 : 503,
                          "application/json",
                          status.ok() ? *status : OpenAiError(status.status()));
        });
    context.http.AddRoute(
        "POST", "/reset_prefix_cache", [this](const std::shared_ptr<HttpExchange>& exchange) {
          admin_.ResetPrefixCache(exchange->request().client);
          exchange->Reply(200, "application/json", "{}");
        });
  }

  // Stop ends the frontend's threads, which use the core. core_.reset() then ends the core's
  // threads, which use the frontend and the servers, before these are destroyed.
  ~RouterService() override {
    Stop();
    core_.reset();
  }

  Status Listen(const config::RouterConfig& config, const ProcessSecurity& security) {
    ConnectionLimits limits = RpcLimitsOf(config.process());
    security.SecureClients(limits);
    limits.max_message_bytes = static_cast<size_t>(config.max_request_bytes());
    limits.ping_every = std::chrono::seconds(30);
    limits.ping_timeout = std::chrono::seconds(20);
    limits.idle_timeout = std::chrono::minutes(5);
    limits.max_streams = config.max_streams_per_connection();
    grpc::Service* const public_services[] = {&generation_};
    BATON_ASSIGN_OR_RETURN(clients_, RpcServer::Start(config.listen(), public_services, limits));
    health_ = std::make_unique<Health>(*clients_);
    core_->WatchReady([this](const Status& ready) { health_->SetReady(ready.ok()); });
    ConnectionLimits operator_limits = RpcLimitsOf(config.process());
    security.SecureOperators(operator_limits, config.admin_listen());
    grpc::Service* const admin_services[] = {&admin_};
    BATON_ASSIGN_OR_RETURN(
        operators_, RpcServer::Start(config.admin_listen(), admin_services, operator_limits));
    operators_->SetServing(admin::v1::Admin::service_full_name(), true);
    grpc::Service* const worker_services[] = {&worker_links_};
    BATON_ASSIGN_OR_RETURN(
        workers_,
        RpcServer::Start(config.worker_listen(), worker_services, PeerLimits(config, security)));
    workers_->SetServing(worker::v1::WorkerLink::service_full_name(), true);
    return OkStatus();
  }

  Status Ready() const override {
    if (health_->draining()) {
      return Status(StatusCode::kUnavailable, "this router is shutting down");
    }
    const auto ready = core_->Query([](const RouterCore& core, Time) { return core.Ready(); });
    return ready.ok() ? *ready : ready.status();
  }

  std::map<std::string, std::string> addresses() const override {
    return {{"grpc", clients_->address()},
            {"workers", workers_->address()},
            {"admin", operators_->address()}};
  }

  // For drain_grace_seconds the router is a lame duck: it reports that it is not ready, but still
  // serves new requests.
  void Drain(Duration limit) override {
    health_->SetDraining();
    kLog.Info("draining: not ready any more; new requests are still accepted for {:.1f} s",
              ToSeconds(grace_));
    {
      std::unique_lock lock(mutex_);
      stopping_.wait_for(lock, grace_, [this] { return stopped_; });
    }
    frontend_.Drain(limit);
  }

  void Stop() override {
    {
      std::lock_guard lock(mutex_);
      if (std::exchange(stopped_, true)) return;
      stopping_.notify_all();
    }
    frontend_.Stop();
    if (clients_ != nullptr) clients_->Shutdown(kShutdownGrace);
    if (operators_ != nullptr) operators_->Shutdown(Duration::zero());
    if (workers_ != nullptr) workers_->Shutdown(Duration::zero());
  }

 private:
  const Duration grace_;
  const std::string name_;
  const std::unique_ptr<ModelText> text_;
  RouterProbe probe_;
  std::unique_ptr<CoreLoop> core_;
  RequestFrontend frontend_;
  GenerationService generation_;
  AdminService admin_;
  WorkerLinkService worker_links_;
  HttpApi api_;
  std::unique_ptr<RpcServer> clients_;
  std::unique_ptr<Health> health_;
  std::unique_ptr<RpcServer> operators_;
  std::unique_ptr<RpcServer> workers_;

  std::mutex mutex_;
  std::condition_variable stopping_;
  bool stopped_ = false;
};

}  // namespace

StatusOr<std::unique_ptr<Service>> StartRouter(const config::RouterConfig& config,
                                               AppContext& context) {
  BATON_RETURN_IF_ERROR(CheckTimes(config));
  BATON_RETURN_IF_ERROR(CheckAliases(config));
  BATON_RETURN_IF_ERROR(CheckMemberId("router_id", config.router_id()));
  BATON_RETURN_IF_ERROR(CheckPorts(config, context.security));
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  EnableReflection();
  BATON_ASSIGN_OR_RETURN(auto text, ModelText::Load(config.model().path(), TextOptionsOf(config)));
  BATON_ASSIGN_OR_RETURN(const OwnModel model, OwnModelOf(config.model(), *text));
  GenerationDefaults sampling;
  if (config.model().generation_config()) {
    BATON_ASSIGN_OR_RETURN(sampling, LoadGenerationDefaults(config.model().path()));
    if (const std::string values = sampling.ToString(); !values.empty()) {
      kLog.Info("default sampling parameters of the model (generation_config.json): {}", values);
    }
  }
  const uint64_t tag = RandomId() & kTagMask;
  auto router =
      std::make_unique<RouterService>(config, std::move(text), model, sampling, context, tag);
  BATON_RETURN_IF_ERROR(router->Listen(config, context.security));
  return router;
}

}  // namespace baton::router
