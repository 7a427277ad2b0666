#include "kvtransfer/peer_writer.h"

#include <algorithm>
#include <array>

namespace baton {
namespace {

// Checksummed and posted for one link in one Pump: keeps the socket busy in between.
constexpr uint64_t kPostQuantum = uint64_t{4} << 20;

}  // namespace

PeerWriter::PeerWriter(const KvTransferOptions& options,
                       std::vector<BoundTransport>& transports,
                       Hello theirs,
                       std::vector<LinkRoute> routes)
    : options_(options), transports_(transports), theirs_(std::move(theirs)) {
  for (LinkRoute& route : routes) {
    const std::string& name = transports_[route.transport].name;
    if (transport_name_.find(name) == std::string::npos) {
      transport_name_ += (transport_name_.empty() ? "" : "+") + name;
    }
    Link link;
    link.source = options_.shards[route.link.source].shard;
    link.destination = theirs_.shards[route.link.destination].shard;
    link.block_bytes = LinkBlockBytes(options_.layout, route.link);
    link.blocks_per_op = std::max<size_t>(1, options_.op_bytes / link.block_bytes);
    link.route = std::move(route);
    links_.push_back(std::move(link));
  }
}

Status PeerWriter::Connect() {
  for (Link& link : links_) {
    // A dead channel goes once its last events are taken.
    if (link.channel && (link.channel->status().ok() || !link.flying.empty())) {
      BATON_RETURN_IF_ERROR(link.channel->status());
      continue;
    }
    BoundTransport& bound = transports_[link.route.transport];
    BATON_ASSIGN_OR_RETURN(link.channel,
                           bound.transport->Connect(*bound.regions[link.route.link.source],
                                                    link.route.endpoint.descriptor,
                                                    link.route.endpoint.region));
  }
  return OkStatus();
}

void PeerWriter::Enqueue(const SessionKey& session,
                         const Terms& terms,
                         std::span<const Block> blocks) {
  for (Link& link : links_) {
    // Each receiver shard has a window of its own (Grant::window_key).
    Terms own = terms;
    own.window_key += link.route.link.destination;
    bool open = false;  // the last job waiting is ours, and may grow
    for (const Block& block : blocks) {
      if (open) {
        Job& last = link.waiting.back();
        if (block.index == last.first + last.pairs.size() &&
            last.pairs.size() < link.blocks_per_op) {
          last.pairs.push_back(block.pair);
          continue;
        }
      }
      link.waiting.push_back({session, own, block.index, {block.pair}});
      open = true;
    }
  }
}

std::vector<uint64_t> PeerWriter::Checksums(const Link& link, std::span<const WriteRun> runs) {
  const std::byte* base = options_.shards[link.route.link.source].arena->data();
  hasher_.Start(link.block_bytes);
  for (const WriteRun& run : runs) hasher_.Update({base + run.source, run.bytes});
  return hasher_.Take();
}

Status PeerWriter::PostJob(Link& link, uint32_t link_index, const Job& job, PieceSink& sink) {
  if (!link.channel) return MakeStatus(StatusCode::kUnavailable, "no data channel");
  const std::vector<WriteRun> runs =
      PlanRuns(options_.layout, link.source, link.destination, link.route.link, job.pairs);
  WriteOp op;
  op.runs = runs;
  op.window_key = job.terms.window_key;
  op.tag = PieceTag(link_index, job.first);
  op.granule = job.terms.checksums ? link.block_bytes : 0;
  const uint64_t bytes = link.block_bytes * job.pairs.size();
  BATON_ASSIGN_OR_RETURN(const OpId id, link.channel->PostWrite(op));
  ++ops_;
  link.flying[id.value()] = {job.session, static_cast<uint32_t>(job.pairs.size()), bytes};
  link.flying_bytes += bytes;
  const std::vector<uint64_t> checksums =
      job.terms.checksums ? Checksums(link, runs) : std::vector<uint64_t>(job.pairs.size());
  sink.OnPosted(job.session, link_index, job.first, checksums, bytes);
  return OkStatus();
}

bool PeerWriter::Post(Link& link, PieceSink& sink) {
  const auto link_index = static_cast<uint32_t>(&link - links_.data());
  uint64_t posted = 0;
  while (!link.waiting.empty() && link.flying_bytes < options_.flight_bytes) {
    if (posted >= kPostQuantum) return true;
    const Job job = std::move(link.waiting.front());
    link.waiting.pop_front();
    const Status status = PostJob(link, link_index, job, sink);
    if (status.code() == StatusCode::kResourceExhausted) {
      link.waiting.push_front(job);
      return false;
    }
    if (!status.ok()) {
      sink.OnLost(job.session, static_cast<uint32_t>(job.pairs.size()), status);
      continue;
    }
    posted += link.block_bytes * job.pairs.size();
  }
  return false;
}

size_t PeerWriter::TakeEvents(Link& link, Time now, PieceSink& sink) {
  std::array<WriteEvent, 64> events;
  size_t count = 0;
  size_t ended = 0;
  do {
    count = link.channel->Poll(now, events);
    for (const WriteEvent& event : std::span(events).first(count)) {
      const auto found = link.flying.find(event.op.value());
      if (found == link.flying.end()) continue;  // kFenced
      const Flight flight = found->second;
      link.flying.erase(found);
      link.flying_bytes -= flight.bytes;
      ++ended;
      if (event.kind == WriteEvent::Kind::kDone) {
        sink.OnWritten(flight.session, flight.pieces, flight.bytes);
      } else {
        sink.OnLost(flight.session, flight.pieces, event.status);
      }
    }
  } while (count == events.size());
  return ended;
}

bool PeerWriter::Pump(Time now, PieceSink& sink) {
  bool more = false;
  for (Link& link : links_) {
    more = Post(link, sink) || more;
    const size_t ended = link.channel ? TakeEvents(link, now, sink) : 0;
    more = more || (ended > 0 && !link.waiting.empty());
  }
  return more;
}

void PeerWriter::Stop(const SessionKey& session, PieceSink& sink) {
  for (Link& link : links_) {
    std::deque<Job> keep;
    uint32_t dropped = 0;
    for (Job& job : link.waiting) {
      if (job.session == session) {
        dropped += static_cast<uint32_t>(job.pairs.size());
      } else {
        keep.push_back(std::move(job));
      }
    }
    link.waiting = std::move(keep);
    if (dropped > 0) {
      sink.OnLost(session, dropped, MakeStatus(StatusCode::kAborted, "not sent any more"));
    }
    for (const auto& [op, flight] : link.flying) {
      if (flight.session == session) link.channel->RequestAbort(OpId(op));
    }
  }
}

void PeerWriter::Fence(const SessionKey& session) {
  for (Link& link : links_) {
    const bool concerned =
        std::any_of(link.flying.begin(), link.flying.end(), [&](const auto& entry) {
          return entry.second.session == session;
        });
    if (concerned) link.channel->Fence();
  }
}

void PeerWriter::FenceAll() {
  for (Link& link : links_) {
    if (link.channel) link.channel->Fence();
  }
}

bool PeerWriter::idle() const {
  return std::all_of(links_.begin(), links_.end(), [](const Link& link) {
    return link.waiting.empty() && link.flying.empty();
  });
}

}  // namespace baton
