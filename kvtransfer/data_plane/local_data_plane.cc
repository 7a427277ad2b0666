#include "kvtransfer/data_plane/local_data_plane.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <utility>

#include "kvtransfer/data_plane/local_peer_writer.h"
#include "kvtransfer/wire/byte_ranges.h"

namespace baton {
StatusOr<std::unique_ptr<LocalDataPlane>> LocalDataPlane::Create(const KvTransferOptions& options,
                                                                 bool listen) {
  std::unique_ptr<LocalDataPlane> plane(new LocalDataPlane(options));
  BATON_ASSIGN_OR_RETURN(plane->transports_, BindTransports(options));
  BATON_RETURN_IF_ERROR(plane->MakeShards(listen));
  return plane;
}

LocalDataPlane::~LocalDataPlane() {
  for (const auto& [key, owner] : windows_) {
    for (BoundTransport& bound : transports_) bound.transport->CloseWindow(key);
  }
}

Status LocalDataPlane::MakeShards(bool listen) {
  for (const LocalShard& shard : options_.shards) {
    shards_.push_back({shard.shard, shard.block_count, {}});
  }
  if (!listen) return OkStatus();
  for (BoundTransport& bound : transports_) {
    BATON_ASSIGN_OR_RETURN(const std::string descriptor, bound.transport->Listen());
    for (size_t i = 0; i < shards_.size(); ++i) {
      if (bound.regions[i] == nullptr) continue;
      shards_[i].endpoints.push_back({bound.name, descriptor, bound.regions[i]->id()});
    }
  }
  return OkStatus();
}

std::vector<int> LocalDataPlane::wait_fds() const {
  std::vector<int> fds;
  for (const BoundTransport& bound : transports_) fds.push_back(bound.transport->wait_fd());
  return fds;
}

StatusOr<std::unique_ptr<PeerWriter>> LocalDataPlane::NewWriter(const Hello& theirs) {
  BATON_ASSIGN_OR_RETURN(const std::vector<LinkRoute> routes,
                         PlanRoutes(options_, transports_, theirs));
  return std::make_unique<LocalPeerWriter>(options_, transports_, theirs, routes);
}

Status LocalDataPlane::OpenWindows(const SessionKey& session, WindowGrant grant) {
  if (grant.blocks.size() != options_.layout.groups.size()) {
    return InvalidArgument("blocks are granted in {} cache groups; the layout has {}",
                           grant.blocks.size(),
                           options_.layout.groups.size());
  }
  SessionWindows& windows = sessions_[session];
  windows.grant = std::move(grant);
  const uint64_t key = windows.grant.window_key;
  std::vector<BlockId> blocks;
  for (const auto& group : windows.grant.blocks)
    std::ranges::copy(group, std::back_inserter(blocks));
  for (uint32_t shard = 0; shard < shards_.size(); ++shard) {
    if (options_.shards[shard].arena == nullptr) continue;
    const size_t block_bytes = ShardBlockBytes(options_.layout, shards_[shard].shard);
    windows_[key + shard] = {session, shard};
    for (BoundTransport& bound : transports_) {
      WriteWindow window;
      window.key = key + shard;
      window.region = bound.regions[shard]->id();
      window.ranges = BlockRanges(block_bytes, blocks);
      window.peer = windows.grant.peer->boot;
      BATON_RETURN_IF_ERROR(bound.transport->OpenWindow(std::move(window)));
      ++windows.open;
    }
  }
  return OkStatus();
}

void LocalDataPlane::SetReceiveRate(uint64_t bytes_per_second) {
  for (BoundTransport& bound : transports_) bound.transport->SetReceiveRate(bytes_per_second);
}

void LocalDataPlane::CloseWindows(const SessionKey& session) {
  const auto found = sessions_.find(session);
  if (found == sessions_.end()) return;
  if (found->second.open == 0) return never_opened_.push_back(session);
  for (uint32_t shard = 0; shard < shards_.size(); ++shard) {
    for (BoundTransport& bound : transports_) {
      bound.transport->CloseWindow(found->second.grant.window_key + shard);
    }
  }
}

void LocalDataPlane::Poll(Time now, WindowListener& listener) {
  for (const SessionKey& session : std::exchange(never_opened_, {})) {
    Forget(session);
    listener.OnWindowsClosed(session, OkStatus());
  }
  for (BoundTransport& bound : transports_) {
    std::array<Arrival, 64> arrivals;
    const size_t count = bound.transport->Poll(now, arrivals);
    for (const Arrival& arrival : std::span(arrivals).first(count)) {
      OnEvent(arrival, *bound.transport, listener);
    }
  }
}

void LocalDataPlane::OnEvent(const Arrival& arrival,
                             const Transport& transport,
                             WindowListener& listener) {
  const auto found = windows_.find(arrival.window_key);
  if (found == windows_.end()) return;
  const WindowOwner owner = found->second;
  SessionWindows& windows = sessions_.at(owner.session);
  switch (arrival.kind) {
    case Arrival::Kind::kArrived:
      OnArrived(windows, owner, arrival, transport, listener);
      break;
    case Arrival::Kind::kNote:
      listener.OnNote(owner.session, arrival.note);
      break;
    case Arrival::Kind::kUnfenced:
      listener.OnWindowsClosed(owner.session, arrival.status);
      break;
    case Arrival::Kind::kClosed:
      if (--windows.open > 0) break;
      Forget(owner.session);
      listener.OnWindowsClosed(owner.session, OkStatus());
      break;
  }
}

void LocalDataPlane::OnArrived(const SessionWindows& windows,
                               const WindowOwner& owner,
                               const Arrival& arrival,
                               const Transport& transport,
                               WindowListener& listener) const {
  PieceArrival piece;
  piece.link = static_cast<uint32_t>(arrival.tag >> 32);
  piece.first = static_cast<uint32_t>(arrival.tag);
  piece.bytes = arrival.bytes;
  piece.checksums = arrival.checksums;
  const Status placed = CheckPlacement(windows.grant, owner.shard, arrival, piece);
  if (!placed.ok()) return listener.OnMisplaced(owner.session, placed);
  const KvLink& link = windows.grant.peer->links[piece.link];
  piece.count = static_cast<uint32_t>(arrival.bytes / LinkBlockBytes(options_.layout, link));
  listener.OnArrival(owner.session, piece, transport.name(), PollsForSeal(transport.caps()));
}

Status LocalDataPlane::CheckPlacement(const WindowGrant& grant,
                                      uint32_t shard,
                                      const Arrival& arrival,
                                      const PieceArrival& piece) const {
  const std::vector<KvLink>& links = grant.peer->links;
  if (piece.link >= links.size() || links[piece.link].destination != shard) {
    return InvalidArgument(
        "a write into shard {} names link {}, which does not lead there", shard, piece.link);
  }
  const KvLink& link = links[piece.link];
  const std::vector<BlockId>& blocks = grant.blocks[link.cache_group];
  const bool state = options_.layout.groups[link.cache_group].state;
  const size_t granted = state ? std::min<size_t>(1, blocks.size()) : blocks.size();
  const uint64_t block_bytes = LinkBlockBytes(options_.layout, link);
  const uint64_t count = arrival.bytes / block_bytes;
  if (count * block_bytes != arrival.bytes || piece.first > granted ||
      count > granted - piece.first) {
    return InvalidArgument(
        "a write of {} bytes from block {} of {} on link {} does not fit the granted blocks",
        arrival.bytes,
        piece.first,
        granted,
        piece.link);
  }
  std::vector<BlockPair> pairs;
  if (state && count > 0) {
    const auto sent = static_cast<size_t>(StateBlocks(options_.layout, grant.peer->sources));
    pairs = PairsOfState(std::vector<BlockId>(sent), blocks);
  } else {
    for (uint64_t i = 0; i < count; ++i) {
      pairs.push_back({BlockId(static_cast<uint32_t>(i)), blocks[piece.first + i]});
    }
  }
  const std::vector<WriteRun> runs = PlanRuns(
      options_.layout, grant.peer->sources[link.source], shards_[shard].shard, link, pairs);
  if (DestinationRanges(runs) == arrival.ranges) return OkStatus();
  return InvalidArgument("a write tagged as blocks {}+{} of link {} went to other addresses",
                         piece.first,
                         count,
                         piece.link);
}

void LocalDataPlane::Forget(const SessionKey& session) {
  const auto found = sessions_.find(session);
  for (uint32_t shard = 0; shard < shards_.size(); ++shard) {
    windows_.erase(found->second.grant.window_key + shard);
  }
  sessions_.erase(found);
}

}  // namespace baton
