#include "kvtransfer/data_plane/local_peer_writer.h"

#include <algorithm>
#include <array>

namespace baton {
namespace {

// The quantum of one Poll on one shard: this many bytes or, if that is more, this many operations
// of full size. It keeps the channel busy until the next Poll.
constexpr uint64_t kPostBytes = uint64_t{4} << 20;
constexpr uint64_t kPostOps = 4;
// The most operations that are held on one channel, so that other operations can pass through it.
// Further held writes are posted without being held.
constexpr size_t kMaxHeld = 256;

}  // namespace

LocalPeerWriter::LocalPeerWriter(const KvTransferOptions& options,
                                 std::vector<BoundTransport>& transports,
                                 Hello theirs,
                                 const std::vector<LinkRoute>& routes)
    : options_(options), transports_(transports), theirs_(std::move(theirs)) {
  for (const LinkRoute& route : routes) {
    Link link;
    link.link = route.link;
    link.source = options_.shards[route.link.source].shard;
    link.destination = theirs_.shards[route.link.destination].shard;
    link.block_bytes = LinkBlockBytes(options_.layout, route.link);
    if (route.transport != LinkRoute::kElsewhere) {
      link.shard = ShardOf(route);
      link.blocks_per_op = BlocksPerOp(link);
    }
    links_.push_back(link);
  }
}

size_t LocalPeerWriter::ShardOf(const LinkRoute& route) {
  for (size_t i = 0; i < shards_.size(); ++i) {
    const KvLink& link = shards_[i].route.link;
    if (link.source == route.link.source && link.destination == route.link.destination) return i;
  }
  const std::string& name = transports_[route.transport].name;
  if (transport_name_.find(name) == std::string::npos) {
    transport_name_ += (transport_name_.empty() ? "" : "+") + name;
  }
  if (!route.not_taken.empty() && not_taken_.find(route.not_taken) == std::string::npos) {
    not_taken_ += (not_taken_.empty() ? "" : "; ") + route.not_taken;
  }
  const TransportCaps caps = transports_[route.transport].transport->caps();
  ShardChannel& shard = shards_.emplace_back();
  shard.route = route;
  shard.op_bytes = options_.op_bytes > 0 ? options_.op_bytes : caps.op_bytes;
  shard.flight_bytes = options_.flight_bytes > 0 ? options_.flight_bytes : caps.flight_bytes;
  shard.receiver_paces = caps.receiver_paces;
  pacers_[route.link.destination] = Pacer();
  return shards_.size() - 1;
}

bool LocalPeerWriter::HasStates(const Link& link) const {
  return options_.layout.groups[link.link.cache_group].state;
}

size_t LocalPeerWriter::BlocksPerOp(const Link& link) const {
  if (HasStates(link)) return 1;
  const ShardChannel& shard = shards_[link.shard];
  const TransportCaps caps = transports_[shard.route.transport].transport->caps();
  const BlockPair any{BlockId(0), BlockId(0)};
  const size_t runs =
      PlanRuns(options_.layout, link.source, link.destination, link.link, {&any, 1}).size();
  return std::max<size_t>(1,
                          std::min({shard.op_bytes / link.block_bytes,
                                    caps.max_op_bytes / link.block_bytes,
                                    caps.max_op_runs / std::max<size_t>(runs, 1)}));
}

void LocalPeerWriter::ShardChannel::CountIn(const InFlightWrite& write) {
  held += write.held ? 1 : 0;
  in_flight_bytes += write.held ? 0 : write.bytes;
}

void LocalPeerWriter::ShardChannel::CountOut(const InFlightWrite& write) {
  held -= write.held ? 1 : 0;
  in_flight_bytes -= write.held ? 0 : write.bytes;
}

std::vector<LinkGroups> LocalPeerWriter::link_groups() const {
  std::vector<LinkGroups> groups;
  for (const Link& link : links_) groups.push_back(GroupsOf(link.link));
  return groups;
}

Duration LocalPeerWriter::GroupTime() const {
  // Channels work in parallel, so the busiest one determines the time.
  double longest = 0;
  for (size_t i = 0; i < shards_.size(); ++i) {
    const ShardChannel& shard = shards_[i];
    const double rate = shard.channel ? shard.channel->bytes_per_second() : 0;
    if (rate == 0) return {};
    uint64_t block_bytes = 0;
    for (const Link& link : links_) {
      if (link.shard == i && !HasStates(link)) block_bytes += link.block_bytes;
    }
    longest = std::max(longest, static_cast<double>(block_bytes) / rate);
  }
  return FromSeconds(longest / options_.layout.layer_groups());
}

uint64_t LocalPeerWriter::op_bytes() const {
  uint64_t bytes = 0;
  for (const ShardChannel& shard : shards_) bytes += shard.op_bytes;
  return bytes;
}

bool LocalPeerWriter::prefers_bursts() const {
  return std::ranges::all_of(shards_, [this](const ShardChannel& shard) {
    return transports_[shard.route.transport].transport->caps().prefers_bursts;
  });
}

Status LocalPeerWriter::Connect() {
  for (ShardChannel& shard : shards_) {
    // A dead channel is replaced once its last events are taken.
    if (shard.channel && (shard.channel->status().ok() || !shard.in_flight.empty())) {
      BATON_RETURN_IF_ERROR(shard.channel->status());
      continue;
    }
    shard.starting.clear();
    BoundTransport& bound = transports_[shard.route.transport];
    BATON_ASSIGN_OR_RETURN(shard.channel,
                           bound.transport->Connect(*bound.regions[shard.route.link.source],
                                                    shard.route.endpoint.descriptor,
                                                    shard.route.endpoint.region));
  }
  return OkStatus();
}

void LocalPeerWriter::Enqueue(const SessionKey& session,
                              const Terms& terms,
                              std::span<const Block> blocks) {
  for (auto& [destination, pacer] : pacers_) pacer.SetRate(terms.bytes_per_second);
  for (uint32_t i = 0; i < links_.size(); ++i) {
    const KvLink& link = links_[i].link;
    if (links_[i].shard != kElsewhere && link.cache_group == terms.cache_group &&
        link.layer_group >= terms.first_group && link.layer_group < terms.end_group) {
      EnqueueOn(i, session, terms, blocks);
    }
  }
  if (terms.urgent) Hasten(session);
}

void LocalPeerWriter::Hasten(const SessionKey& session) {
  for (ShardChannel& shard : shards_) {
    for (Job& job : shard.waiting) {
      if (job.session == session) job.terms.urgent = true;
    }
    std::stable_partition(shard.waiting.begin(), shard.waiting.end(), [](const Job& job) {
      return job.terms.urgent;
    });
  }
}

void LocalPeerWriter::EnqueueOn(uint32_t link_index,
                                const SessionKey& session,
                                Terms terms,
                                std::span<const Block> blocks) {
  const Link& link = links_[link_index];
  std::deque<Job>& waiting = shards_[link.shard].waiting;
  // Each receiver shard has its own window (Grant::window_key).
  terms.window_key += link.link.destination;
  bool open = false;  // the last waiting job is one of these blocks', and may grow
  for (const Block& block : blocks) {
    if (open) {
      Job& last = waiting.back();
      const bool next = block.index == last.first + last.pieces && last.pieces < link.blocks_per_op;
      const bool same = block.index == last.first + last.pieces - 1;
      if (next || same) {
        last.pieces += next ? 1 : 0;
        last.pairs.push_back(block.pair);
        continue;
      }
    }
    waiting.push_back({session, terms, link_index, block.index, 1, {block.pair}});
    open = true;
  }
}

StatusOr<uint64_t> LocalPeerWriter::PostJob(ShardChannel& shard,
                                            const Job& job,
                                            WriteListener& listener) {
  if (!shard.channel) return MakeStatus(StatusCode::kUnavailable, "no data channel");
  const Link& link = links_[job.link];
  const std::vector<WriteRun> runs =
      PlanRuns(options_.layout, link.source, link.destination, link.link, job.pairs);
  WriteOp op;
  op.runs = runs;
  op.window_key = job.terms.window_key;
  op.tag = PieceTag(job.link, job.first);
  op.granule = job.terms.checksums ? link.block_bytes : 0;
  op.held = job.terms.held && shard.held < kMaxHeld;
  const uint64_t bytes = link.block_bytes * job.pieces;
  BATON_ASSIGN_OR_RETURN(const OpId id, shard.channel->PostWrite(op));
  ++ops_;
  const InFlightWrite write = {job.session, job.link, job.first, job.pieces, bytes, op.held};
  shard.in_flight[id.value()] = write;
  shard.CountIn(write);
  if (!job.terms.checksums) {
    listener.OnPosted(job.session, job.link, job.first, std::vector<uint64_t>(job.pieces), bytes);
  }
  return op.held ? 0 : bytes;
}

bool LocalPeerWriter::IsAllowed(ShardChannel& shard, Time now) {
  if (shard.receiver_paces) return true;
  Pacer& pacer = pacers_[shard.route.link.destination];
  if (pacer.Allowance(now) > 0) return true;
  shard.paced_until = pacer.next();
  return false;
}

Time LocalPeerWriter::wake_time() const {
  Time earliest = kNever;
  for (const ShardChannel& shard : shards_) earliest = std::min(earliest, shard.paced_until);
  return earliest;
}

bool LocalPeerWriter::Post(ShardChannel& shard, Time now, WriteListener& listener) {
  uint64_t posted = 0;
  shard.paced_until = kNever;
  Pacer& pacer = pacers_[shard.route.link.destination];
  while (!(shard.starting.empty() && shard.waiting.empty()) &&
         shard.in_flight_bytes < shard.flight_bytes) {
    if (posted >= std::max(kPostBytes, kPostOps * shard.op_bytes)) return true;
    if (!IsAllowed(shard, now)) return false;
    if (!shard.starting.empty()) {
      const uint64_t started = StartFirst(shard);
      pacer.Spend(started);
      posted += started;
      continue;
    }
    const Job job = std::move(shard.waiting.front());
    shard.waiting.pop_front();
    const StatusOr<uint64_t> moving = PostJob(shard, job, listener);
    if (moving.status().code() == StatusCode::kResourceExhausted) {
      shard.waiting.push_front(job);
      return false;
    }
    if (!moving.ok()) {
      listener.OnWriteLost(job.session, job.pieces, moving.status());
      continue;
    }
    pacer.Spend(*moving);
    posted += links_[job.link].block_bytes * job.pieces;
  }
  return false;
}

void LocalPeerWriter::Start(const SessionKey& session) {
  for (ShardChannel& shard : shards_) {
    for (Job& job : shard.waiting) {
      if (job.session == session) job.terms.held = false;
    }
    std::vector<uint64_t> held;
    for (const auto& [op, write] : shard.in_flight) {
      if (write.session == session && write.held) held.push_back(op);
    }
    std::sort(held.begin(), held.end());  // in the order in which they were posted
    shard.starting.insert(shard.starting.end(), held.begin(), held.end());
  }
}

uint64_t LocalPeerWriter::StartFirst(ShardChannel& shard) {
  const uint64_t op = shard.starting.front();
  shard.starting.pop_front();
  const auto found = shard.in_flight.find(op);
  if (found == shard.in_flight.end() || !found->second.held) return 0;
  shard.CountOut(found->second);
  found->second.held = false;
  shard.CountIn(found->second);
  shard.channel->Start(OpId(op));
  return found->second.bytes;
}

size_t LocalPeerWriter::TakeEvents(ShardChannel& shard, Time now, WriteListener& listener) {
  std::array<WriteEvent, 64> events;
  size_t count = 0;
  size_t ended = 0;
  do {
    count = shard.channel->Poll(now, events);
    for (const WriteEvent& event : std::span(events).first(count)) {
      const auto found = shard.in_flight.find(event.op.value());
      if (found == shard.in_flight.end()) continue;  // kFenced
      const InFlightWrite write = found->second;
      if (event.kind == WriteEvent::Kind::kChecksums) {
        listener.OnPosted(write.session, write.link, write.first, event.checksums, write.bytes);
        continue;
      }
      shard.in_flight.erase(found);
      shard.CountOut(write);
      ++ended;
      if (event.kind == WriteEvent::Kind::kDone) {
        listener.OnWritten(write.session, write.pieces, write.bytes);
      } else {
        listener.OnWriteLost(write.session, write.pieces, event.status);
      }
    }
  } while (count == events.size());
  return ended;
}

bool LocalPeerWriter::Poll(Time now, WriteListener& listener) {
  bool more = false;
  for (ShardChannel& shard : shards_) {
    more = Post(shard, now, listener) || more;
    const size_t ended = shard.channel ? TakeEvents(shard, now, listener) : 0;
    more = more || (shard.channel && shard.channel->wants_poll());
    const bool may_post = shard.paced_until == kNever;
    more = more || (ended > 0 && may_post && !(shard.starting.empty() && shard.waiting.empty()));
  }
  return more;
}

void LocalPeerWriter::Stop(const SessionKey& session, WriteListener& listener) {
  for (ShardChannel& shard : shards_) {
    std::deque<Job> keep;
    uint32_t dropped = 0;
    for (Job& job : shard.waiting) {
      if (job.session == session) {
        dropped += job.pieces;
      } else {
        keep.push_back(std::move(job));
      }
    }
    shard.waiting = std::move(keep);
    if (dropped > 0) {
      listener.OnWriteLost(
          session, dropped, MakeStatus(StatusCode::kAborted, "the session stopped its writes"));
    }
    for (const auto& [op, write] : shard.in_flight) {
      if (write.session == session) shard.channel->RequestAbort(OpId(op));
    }
  }
}

void LocalPeerWriter::Release(uint64_t window_key) {
  for (ShardChannel& shard : shards_) {
    if (shard.channel) shard.channel->Release(window_key + shard.route.link.destination);
  }
}

bool LocalPeerWriter::PostNote(uint64_t window_key, std::string_view note) {
  return std::ranges::any_of(shards_, [&](const ShardChannel& shard) {
    return shard.channel &&
           shard.channel->PostNote(window_key + shard.route.link.destination, note);
  });
}

bool LocalPeerWriter::takes_notes() const {
  return std::ranges::any_of(shards_, [this](const ShardChannel& shard) {
    return transports_[shard.route.transport].transport->caps().max_note_bytes > 0;
  });
}

bool LocalPeerWriter::polls_for_seal() const {
  return std::ranges::any_of(shards_, [this](const ShardChannel& shard) {
    return PollsForSeal(transports_[shard.route.transport].transport->caps());
  });
}

void LocalPeerWriter::Fence(const SessionKey& session) {
  for (ShardChannel& shard : shards_) {
    const bool concerned =
        std::any_of(shard.in_flight.begin(), shard.in_flight.end(), [&](const auto& entry) {
          return entry.second.session == session;
        });
    if (concerned) shard.channel->Fence();
  }
}

void LocalPeerWriter::FenceAll() {
  for (ShardChannel& shard : shards_) {
    if (shard.channel) shard.channel->Fence();
  }
}

bool LocalPeerWriter::idle() const {
  return std::all_of(shards_.begin(), shards_.end(), [](const ShardChannel& shard) {
    return shard.waiting.empty() && shard.in_flight.empty();
  });
}

}  // namespace baton
