#include "tests/conformance/memory_transport.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "common/base/take_front.h"
#include "kvtransfer/wire/byte_ranges.h"
#include "kvtransfer/wire/frame.h"

namespace baton {

class MemoryChannel final : public Channel {
 public:
  MemoryChannel(MemoryTransport& own,
                MemoryTransport* peer,
                uint32_t peer_region,
                WindowTable::Memory source)
      : fabric_(own.fabric_), own_(own), peer_(peer), region_(peer_region), source_(source) {
    peer_->senders_.push_back(this);
  }
  ~MemoryChannel() override {
    std::lock_guard lock(fabric_.mutex_);
    Die(MakeStatus(StatusCode::kCancelled, "channel destroyed"), WriteEvent::Kind::kAborted);
  }

  StatusOr<OpId> PostWrite(const WriteOp& op) override {
    std::lock_guard lock(fabric_.mutex_);
    if (!status_.ok()) return status_;
    if (op.held) return InvalidArgument("a write that is held");
    BATON_RETURN_IF_ERROR(HeaderOf(op, next_op_, source_.bytes).status());
    MemoryTransport::Incoming write;
    write.channel = this;
    write.op = next_op_++;
    write.region = region_;
    write.window_key = op.window_key;
    write.tag = op.tag;
    write.granule = op.granule;
    write.runs.assign(op.runs.begin(), op.runs.end());
    const WriteFaults& faults = fabric_.faults_;
    if (fabric_.Chance(faults.late)) {
      write.delay = Duration(static_cast<int64_t>(fabric_.random_() % faults.latest.count()));
    }
    write.never = fabric_.Chance(faults.never);
    write.torn = fabric_.Chance(faults.torn);
    outstanding_.insert(write.op);
    const OpId id(write.op);
    peer_->incoming_.push_back(std::move(write));
    peer_->Signal();
    if (op.granule > 0) ReportChecksums(id, op);
    return id;
  }

  void RequestAbort(OpId op) override {
    std::lock_guard lock(fabric_.mutex_);
    if (!outstanding_.contains(op.value())) return;
    std::erase_if(peer_->incoming_, [&](const auto& write) {
      return write.channel == this && write.op == op.value();
    });
    End(op.value(), WriteEvent::Kind::kAborted, MakeStatus(StatusCode::kAborted, "aborted"));
  }

  void Release(uint64_t) override {}

  void Fence() override {
    std::lock_guard lock(fabric_.mutex_);
    Die(MakeStatus(StatusCode::kAborted, "fenced"), WriteEvent::Kind::kAborted);
    events_.push_back({OpId(), WriteEvent::Kind::kFenced, OkStatus(), {}});
    own_.Signal();
  }

  size_t Poll(Time, std::span<WriteEvent> events) override {
    std::lock_guard lock(fabric_.mutex_);
    uint64_t value = 0;
    (void)!::read(own_.event_.get(), &value, sizeof(value));
    const size_t count = TakeFront(events_, events);
    if (!events_.empty()) own_.Signal();
    return count;
  }

  Status status() const override {
    std::lock_guard lock(fabric_.mutex_);
    return status_;
  }

  void End(uint64_t op, WriteEvent::Kind kind, Status status) {
    if (outstanding_.erase(op) == 0) return;
    events_.push_back({OpId(op), kind, std::move(status), {}});
    own_.Signal();
  }

  // Ends the channel: the peer is gone, or this side closes it.
  void Die(const Status& reason, WriteEvent::Kind kind) {
    if (peer_ == nullptr) return;
    std::erase_if(peer_->incoming_, [&](const auto& write) { return write.channel == this; });
    std::erase(peer_->senders_, this);
    peer_ = nullptr;
    status_ = reason;
    for (const uint64_t op : std::set<uint64_t>(outstanding_)) End(op, kind, reason);
  }

  const WindowTable::Memory& source() const { return source_; }

 private:
  void ReportChecksums(OpId id, const WriteOp& op) {
    GranuleHasher hasher;
    hasher.Start(op.granule);
    for (const WriteRun& run : op.runs) hasher.Update({source_.data + run.source, run.bytes});
    events_.push_back({id, WriteEvent::Kind::kChecksums, OkStatus(), hasher.Take()});
    own_.Signal();
  }

  MemoryFabric& fabric_;
  MemoryTransport& own_;
  MemoryTransport* peer_;
  const uint32_t region_;
  const WindowTable::Memory source_;
  Status status_;
  uint64_t next_op_ = 1;
  std::set<uint64_t> outstanding_;
  std::deque<WriteEvent> events_;
};

std::unique_ptr<Transport> MemoryFabric::MakeTransport() {
  return std::make_unique<MemoryTransport>(*this,
                                           UniqueFd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)));
}

void MemoryFabric::SetFaults(const WriteFaults& faults) {
  std::lock_guard lock(mutex_);
  faults_ = faults;
}

void MemoryFabric::HoldCloses() {
  std::lock_guard lock(mutex_);
  holds_closes_ = true;
}

void MemoryFabric::ReleaseCloses() {
  std::lock_guard lock(mutex_);
  holds_closes_ = false;
  for (const auto& [name, endpoint] : endpoints_) {
    for (const uint64_t key : std::exchange(endpoint->held_closes_, {})) {
      endpoint->CloseWindow(key);
    }
  }
}

size_t MemoryFabric::open_windows() const {
  std::lock_guard lock(mutex_);
  size_t count = 0;
  for (const auto& [name, endpoint] : endpoints_) count += endpoint->open_.size();
  return count;
}

size_t MemoryFabric::held_closes() const {
  std::lock_guard lock(mutex_);
  size_t count = 0;
  for (const auto& [name, endpoint] : endpoints_) count += endpoint->held_closes_.size();
  return count;
}

MemoryTransport::~MemoryTransport() {
  std::lock_guard lock(fabric_.mutex_);
  fabric_.endpoints_.erase(descriptor_);
  for (MemoryChannel* channel : std::vector<MemoryChannel*>(senders_)) {
    channel->Die(MakeStatus(StatusCode::kUnavailable, "the peer is gone"),
                 WriteEvent::Kind::kFailed);
  }
}

TransportCaps MemoryTransport::caps() const {
  TransportCaps caps;
  caps.max_op_bytes = kMaxOpBytes;
  caps.max_op_runs = kMaxOpRuns;
  return caps;
}

void MemoryTransport::Signal() const {
  const uint64_t one = 1;
  (void)!::write(event_.get(), &one, sizeof(one));
}

StatusOr<std::unique_ptr<Region>> MemoryTransport::Register(const Buffer& buffer) {
  return windows_.Add(buffer);
}

StatusOr<std::string> MemoryTransport::Listen() {
  std::lock_guard lock(fabric_.mutex_);
  descriptor_ = fmt::format("memory-{}", fabric_.next_endpoint_++);
  fabric_.endpoints_[descriptor_] = this;
  return descriptor_;
}

Status MemoryTransport::OpenWindow(WriteWindow window) {
  std::lock_guard lock(fabric_.mutex_);
  const uint64_t key = window.key;
  BATON_RETURN_IF_ERROR(windows_.Open(std::move(window)));
  open_.insert(key);
  return OkStatus();
}

void MemoryTransport::CloseWindow(uint64_t window_key) {
  std::lock_guard lock(fabric_.mutex_);
  if (!open_.contains(window_key)) return;
  if (fabric_.holds_closes_) {
    held_closes_.insert(window_key);
    return;
  }
  open_.erase(window_key);
  if (windows_.Close(window_key)) Signal();
}

Status MemoryTransport::Reaches(std::string_view descriptor) const {
  std::lock_guard lock(fabric_.mutex_);
  if (fabric_.endpoints_.contains(std::string(descriptor))) return OkStatus();
  return MakeStatus(StatusCode::kUnavailable, "no memory endpoint '{}'", descriptor);
}

StatusOr<std::unique_ptr<Channel>> MemoryTransport::Connect(const Region& local,
                                                            std::string_view descriptor,
                                                            uint32_t peer_region) {
  std::lock_guard lock(fabric_.mutex_);
  BATON_RETURN_IF_ERROR(Reaches(descriptor));
  return std::make_unique<MemoryChannel>(
      *this, fabric_.endpoints_[std::string(descriptor)], peer_region, *windows_.Find(local.id()));
}

size_t MemoryTransport::Poll(Time now, std::span<Arrival> arrivals) {
  std::lock_guard lock(fabric_.mutex_);
  uint64_t value = 0;
  (void)!::read(event_.get(), &value, sizeof(value));
  std::vector<Incoming> due;
  std::deque<Incoming> later;
  for (Incoming& write : incoming_) {
    if (write.due == Time{}) write.due = now + write.delay;
    if (write.never || write.due > now) {
      later.push_back(std::move(write));
    } else {
      due.push_back(std::move(write));
    }
  }
  incoming_ = std::move(later);
  for (Incoming& write : due) Apply(std::move(write), now);
  const size_t count = windows_.TakeArrivals(arrivals);
  if (windows_.arrivals() > 0) Signal();
  return count;
}

void MemoryTransport::ReadPayload(Incoming& write) {
  write.payload.clear();
  for (const WriteRun& run : write.runs) {
    const std::byte* from = write.channel->source().data + run.source;
    write.payload.insert(write.payload.end(), from, from + run.bytes);
  }
}

void MemoryTransport::CopyIn(const Incoming& write, size_t bytes) const {
  size_t at = 0;
  for (const WriteRun& run : write.runs) {
    const size_t count = std::min<size_t>(run.bytes, bytes - at);
    std::memcpy(
        windows_.Find(write.region)->data + run.destination, write.payload.data() + at, count);
    at += count;
  }
}

void MemoryTransport::Tear(Incoming write, Time now) {
  ReadPayload(write);
  CopyIn(write, write.payload.size() / 2);
  write.torn = false;
  write.due =
      now + Duration(static_cast<int64_t>(fabric_.random_() % fabric_.faults_.latest.count()));
  incoming_.push_back(std::move(write));
}

void MemoryTransport::Apply(Incoming write, Time now) {
  const Status allowed =
      windows_.CheckWrite(write.window_key, write.region, DestinationRanges(write.runs));
  if (!allowed.ok()) {
    if (write.channel) write.channel->End(write.op, WriteEvent::Kind::kFailed, allowed);
    return;
  }
  if (write.torn) return Tear(std::move(write), now);
  if (write.channel) {
    ReadPayload(write);
    if (!write.payload.empty() && fabric_.Chance(fabric_.faults_.corrupt)) {
      write.payload[fabric_.random_() % write.payload.size()] ^= std::byte{1};
    }
  }
  Arrival arrival;
  arrival.window_key = write.window_key;
  arrival.region = write.region;
  arrival.tag = write.tag;
  arrival.bytes = write.payload.size();
  CopyIn(write, write.payload.size());
  arrival.ranges = DestinationRanges(write.runs);
  GranuleHasher hasher;
  hasher.Start(write.granule);
  hasher.Update(write.payload);
  arrival.checksums = hasher.Take();
  windows_.Report(std::move(arrival));
  if (write.channel == nullptr) return;
  write.channel->End(write.op, WriteEvent::Kind::kDone, OkStatus());
  if (!fabric_.Chance(fabric_.faults_.twice)) return;
  write.channel = nullptr;
  write.due =
      now + Duration(static_cast<int64_t>(fabric_.random_() % fabric_.faults_.latest.count()));
  incoming_.push_back(std::move(write));
}

}  // namespace baton
