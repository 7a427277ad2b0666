#include "kvtransfer/bound_transport.h"

#include <algorithm>
#include <utility>

#include "kvtransfer/make_transport.h"

namespace baton {
namespace {

StatusOr<BoundTransport> Bind(const std::string& name, const KvTransferOptions& options) {
  BoundTransport bound;
  bound.name = name;
  BATON_ASSIGN_OR_RETURN(
      bound.transport,
      options.make_transport ? options.make_transport(name) : MakeTransport(name, options));
  for (const LocalShard& shard : options.shards) {
    BATON_ASSIGN_OR_RETURN(auto region, bound.transport->Register(*shard.arena));
    bound.regions.push_back(std::move(region));
  }
  return bound;
}

const KvEndpoint* FindEndpoint(const KvShardInfo& shard, const std::string& transport) {
  for (const KvEndpoint& endpoint : shard.endpoints) {
    if (endpoint.transport == transport) return &endpoint;
  }
  return nullptr;
}

StatusOr<LinkRoute> PlanRoute(const std::vector<BoundTransport>& transports,
                              const Hello& theirs,
                              const KvLink& link) {
  const KvShardInfo& shard = theirs.shards[link.destination];
  std::string why;
  for (size_t i = 0; i < transports.size(); ++i) {
    const KvEndpoint* endpoint = FindEndpoint(shard, transports[i].name);
    const Status reached = endpoint == nullptr
                               ? MakeStatus(StatusCode::kUnavailable, "the peer does not offer it")
                               : transports[i].transport->Reaches(endpoint->descriptor);
    if (reached.ok()) return LinkRoute{link, i, *endpoint};
    why += fmt::format("{}{}: {}", why.empty() ? "" : "; ", transports[i].name, Message(reached));
  }
  return MakeStatus(StatusCode::kFailedPrecondition,
                    "no KV transport reaches shard {} of worker {} ({})",
                    link.destination,
                    theirs.worker,
                    why);
}

}  // namespace

Status ValidateOptions(const KvTransferOptions& options) {
  BATON_RETURN_IF_ERROR(options.layout.Validate());
  if (options.worker.value().empty()) return InvalidArgument("KV transfer: the worker id is empty");
  if (options.shards.empty()) return InvalidArgument("KV transfer: there is no local shard");
  for (const LocalShard& shard : options.shards) {
    BATON_RETURN_IF_ERROR(ValidateShard(options.layout, shard.shard));
    const size_t block_bytes = ShardBlockBytes(options.layout, shard.shard);
    const size_t arena = shard.arena == nullptr ? 0 : shard.arena->size();
    if (shard.block_count == 0 || arena / block_bytes < shard.block_count) {
      return InvalidArgument(
          "KV transfer: an arena of {} bytes does not hold {} blocks of {} bytes",
          arena,
          shard.block_count,
          block_bytes);
    }
  }
  const SessionTimes& times = options.times;
  if (times.renew <= Duration{} || times.lease < 2 * times.renew || times.drain <= Duration{} ||
      times.fence <= Duration{}) {
    return InvalidArgument(
        "KV transfer times: renew {} ms, lease {} ms, drain {} ms, fence {} ms; all must be "
        "positive, and the lease at least twice renew",
        ToMillis(times.renew),
        ToMillis(times.lease),
        ToMillis(times.drain),
        ToMillis(times.fence));
  }
  if (options.max_sessions == 0) {
    return InvalidArgument("KV transfer: max_sessions must be positive");
  }
  return OkStatus();
}

StatusOr<std::vector<BoundTransport>> BindTransports(const KvTransferOptions& options) {
  const std::string& required = options.transport.require_transport;
  std::vector<BoundTransport> transports;
  if (!required.empty()) {
    BATON_ASSIGN_OR_RETURN(BoundTransport bound, Bind(required, options));
    transports.push_back(std::move(bound));
    return transports;
  }
  Status last = InvalidArgument("KV transfer: no transport is named");
  for (const std::string& name : options.transport.names) {
    StatusOr<BoundTransport> bound = Bind(name, options);
    if (bound.ok()) {
      transports.push_back(*std::move(bound));
      continue;
    }
    last = Annotate(bound.status(), fmt::format("KV transport {}", name));
    if (options.log) options.log(fmt::format("not used: {}", Message(last)));
  }
  if (transports.empty()) return last;
  return transports;
}

StatusOr<Hello> MakeHello(const KvTransferOptions& options,
                          std::vector<BoundTransport>& transports,
                          bool listen) {
  Hello hello;
  hello.worker = options.worker;
  hello.boot = options.boot;
  hello.model_fingerprint = options.model_fingerprint;
  hello.layout = options.layout;
  for (const LocalShard& shard : options.shards) {
    hello.shards.push_back({shard.shard, shard.block_count, {}});
  }
  if (!listen) return hello;
  for (BoundTransport& bound : transports) {
    BATON_ASSIGN_OR_RETURN(const std::string descriptor, bound.transport->Listen());
    for (size_t i = 0; i < hello.shards.size(); ++i) {
      hello.shards[i].endpoints.push_back({bound.name, descriptor, bound.regions[i]->id()});
    }
  }
  return hello;
}

std::vector<KvShard> ShardsOf(const Hello& hello) {
  std::vector<KvShard> shards;
  shards.reserve(hello.shards.size());
  for (const KvShardInfo& info : hello.shards) shards.push_back(info.shard);
  return shards;
}

StatusOr<std::vector<LinkRoute>> PlanRoutes(const KvTransferOptions& options,
                                            const std::vector<BoundTransport>& transports,
                                            const Hello& theirs) {
  std::vector<KvShard> ours;
  for (const LocalShard& shard : options.shards) ours.push_back(shard.shard);
  BATON_ASSIGN_OR_RETURN(const std::vector<KvLink> links, PlanLinks(ours, ShardsOf(theirs)));
  std::vector<LinkRoute> routes;
  for (const KvLink& link : links) {
    BATON_ASSIGN_OR_RETURN(LinkRoute route, PlanRoute(transports, theirs, link));
    for (const KvLink& part : SplitByLayers(options.layout, {&link, 1})) {
      route.link = part;
      routes.push_back(route);
    }
  }
  return routes;
}

}  // namespace baton
