#include "kvtransfer/data_plane/bound_transport.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "kvtransfer/data_plane/make_transport.h"

namespace baton {
namespace {

StatusOr<BoundTransport> Bind(const std::string& name, const KvTransferOptions& options) {
  BoundTransport bound;
  bound.name = name;
  BATON_ASSIGN_OR_RETURN(
      bound.transport,
      options.make_transport ? options.make_transport(name) : MakeTransport(name, options));
  for (const LocalShard& shard : options.shards) {
    bound.regions.push_back(nullptr);
    if (shard.arena == nullptr) continue;
    BATON_ASSIGN_OR_RETURN(bound.regions.back(), bound.transport->Register(*shard.arena));
  }
  return bound;
}

const KvEndpoint* FindEndpoint(const KvShardInfo& shard, const std::string& transport) {
  for (const KvEndpoint& endpoint : shard.endpoints) {
    if (endpoint.transport == transport) return &endpoint;
  }
  return nullptr;
}

// Appends why the transport `name` is not taken.
void AddReason(std::string& reasons, const std::string& name, const Status& why) {
  reasons += fmt::format("{}{}: {}", reasons.empty() ? "" : "; ", name, Message(why));
}

StatusOr<LinkRoute> PlanRoute(const std::vector<BoundTransport>& transports,
                              const Hello& theirs,
                              const KvLink& link) {
  const KvShardInfo& shard = theirs.shards[link.destination];
  std::string why;
  for (size_t i = 0; i < transports.size(); ++i) {
    if (!transports[i].unusable.empty()) why += (why.empty() ? "" : "; ") + transports[i].unusable;
    const KvEndpoint* endpoint = FindEndpoint(shard, transports[i].name);
    const Status reached =
        endpoint == nullptr
            ? MakeStatus(StatusCode::kUnavailable, "the peer does not offer this transport")
            : transports[i].transport->Reaches(endpoint->descriptor);
    if (reached.ok()) return LinkRoute{link, i, *endpoint, why};
    AddReason(why, transports[i].name, reached);
  }
  return MakeStatus(StatusCode::kFailedPrecondition,
                    "no KV transport reaches shard {} of worker {} ({})",
                    link.destination,
                    theirs.worker,
                    why);
}

}  // namespace

StatusOr<std::vector<BoundTransport>> BindTransports(const KvTransferOptions& options) {
  const std::string& required = options.transport.require_transport;
  std::vector<BoundTransport> transports;
  if (!required.empty()) {
    BATON_ASSIGN_OR_RETURN(BoundTransport bound, Bind(required, options));
    transports.push_back(std::move(bound));
    return transports;
  }
  std::string unusable;
  Status last = InvalidArgument("KV transfer: no transport is named");
  for (const std::string& name : options.transport.names) {
    StatusOr<BoundTransport> bound = Bind(name, options);
    if (bound.ok()) {
      bound->unusable = std::exchange(unusable, {});
      transports.push_back(*std::move(bound));
      continue;
    }
    last = Annotate(bound.status(), fmt::format("KV transport {}", name));
    AddReason(unusable, name, bound.status());
    if (options.log_info) options.log_info(fmt::format("not used: {}", Message(last)));
  }
  if (transports.empty()) return last;
  return transports;
}

StatusOr<std::vector<LinkRoute>> PlanRoutes(const KvTransferOptions& options,
                                            const std::vector<BoundTransport>& transports,
                                            const Hello& theirs) {
  std::vector<KvShard> ours;
  for (const LocalShard& shard : options.shards) ours.push_back(shard.shard);
  BATON_ASSIGN_OR_RETURN(const std::vector<KvLink> links,
                         PlanLinks(options.layout, ours, ShardsOf(theirs)));
  std::vector<LinkRoute> routes;
  std::optional<LinkRoute> last;
  for (const KvLink& link : links) {
    if (options.shards[link.source].arena == nullptr) {
      routes.push_back({link, LinkRoute::kElsewhere, {}, {}});
      continue;
    }
    // Links to the same shard are neighbours.
    if (!last.has_value() || last->link.destination != link.destination) {
      BATON_ASSIGN_OR_RETURN(last, PlanRoute(transports, theirs, link));
    }
    last->link = link;
    routes.push_back(*last);
  }
  return routes;
}

}  // namespace baton
