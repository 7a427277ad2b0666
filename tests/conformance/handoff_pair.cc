#include "tests/conformance/handoff_pair.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <utility>

#include "kernels/cpu/cpu_device.h"
#include "tests/conformance/layout_order.h"

namespace baton {

void SessionLogs::Change(SessionId id, const std::function<void(SessionLog&)>& change) {
  {
    std::lock_guard lock(mutex_);
    change(logs_[id]);
  }
  changed_.notify_all();
}

SessionLog SessionLogs::Get(SessionId id) const {
  std::lock_guard lock(mutex_);
  const auto found = logs_.find(id);
  return found == logs_.end() ? SessionLog{} : found->second;
}

bool SessionLogs::Wait(SessionId id,
                       const std::function<bool(const SessionLog&)>& condition) const {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, std::chrono::seconds(30), [&] {
    const auto found = logs_.find(id);
    return found != logs_.end() && condition(found->second);
  });
}

void NoteGrant(const Envelope& envelope, SessionLogs& logs) {
  if (!std::holds_alternative<Grant>(envelope.message)) return;
  logs.Change(envelope.session, [](SessionLog& log) { log.granted = true; });
}

class HandoffPair::SenderSide final : public KvSenderListener {
 public:
  explicit SenderSide(SessionLogs& logs) : logs_(logs) {}
  void OnRefused(SessionId id, Epoch, const Status& status) override {
    logs_.Change(id, [&](SessionLog& log) {
      ++log.refusals;
      log.status = status;
    });
  }
  void OnFinished(SessionId id, Epoch, const Status& status, const TransferStats& stats) override {
    logs_.Change(id, [&](SessionLog& log) {
      ++log.ends;
      log.status = status;
      log.stats = stats;
      log.committed = status.ok();
    });
  }

 private:
  SessionLogs& logs_;
};

class HandoffPair::ReceiverSide final : public KvReceiverListener {
 public:
  explicit ReceiverSide(HandoffPair& pair) : pair_(pair) {}

  void OnOffer(const WorkerId&, SessionId id, Epoch epoch, const baton::Offer& offer) override {
    pair_.received_.Change(id, [](SessionLog& log) { ++log.offers; });
    if (pair_.on_offer) return pair_.on_offer(id, epoch, offer);
    std::vector<BlockId> blocks;
    std::vector<BlockId> state;
    {
      std::lock_guard lock(pair_.mutex_);
      const KvLayout& layout = pair_.options_.layout;
      blocks = Take(PromptBlocks(offer.total_tokens, layout.block_tokens) *
                    static_cast<uint32_t>(layout.block_groups()));
      state = Take(static_cast<uint32_t>(StateBlocks(layout, pair_.options_.receiver_shards)));
      pair_.granted_[id] = blocks;
      pair_.granted_states_[id] = state;
    }
    pair_.receiver_->Grant(id, epoch, 0, blocks, state);
  }
  void OnWithdrawn(SessionId id, Epoch, const Status& status) override {
    pair_.received_.Change(id, [&](SessionLog& log) {
      ++log.ends;
      log.withdrawn = true;
      log.status = status;
    });
  }
  void OnCommitted(SessionId id,
                   Epoch,
                   const std::string& payload,
                   const TransferStats& stats) override {
    pair_.received_.Change(id, [&](SessionLog& log) {
      ++log.ends;
      log.committed = true;
      log.payload = payload;
      log.stats = stats;
    });
  }
  void OnReleased(SessionId id, Epoch, const Status& status) override {
    pair_.received_.Change(id, [&](SessionLog& log) {
      ++log.ends;
      log.status = status;
    });
  }

 private:
  std::vector<BlockId> Take(uint32_t count) {
    std::vector<BlockId> blocks;
    for (uint32_t i = 0; i < count; ++i) {
      blocks.push_back(BlockId(pair_.next_block_++ % pair_.options_.blocks));
    }
    std::reverse(blocks.begin(), blocks.end());
    return blocks;
  }

  HandoffPair& pair_;
};

class HandoffPair::Stream final : public ControlStream {
 public:
  Stream(HandoffPair& pair, bool to_receiver) : pair_(pair), to_receiver_(to_receiver) {}
  Status Send(const Envelope& envelope) override {
    if (pair_.filter && !pair_.filter(envelope, to_receiver_)) return OkStatus();
    if (to_receiver_) return pair_.receiver_->OnMessage(WorkerId(kSenderName), envelope);
    BATON_RETURN_IF_ERROR(pair_.sender_->OnMessage(WorkerId(kReceiverName), envelope));
    NoteGrant(envelope, pair_.sent_);
    return OkStatus();
  }

 private:
  HandoffPair& pair_;
  const bool to_receiver_;
};

HandoffPair::HandoffPair(Options options) : options_(std::move(options)) {
  if (options_.sender_shards.empty()) options_.sender_shards = {WholeModel(options_.layout)};
  if (options_.receiver_shards.empty()) options_.receiver_shards = {WholeModel(options_.layout)};
  static CpuDevice cpu;
  Device& device = options_.device != nullptr ? *options_.device : cpu;
  const auto allocate = [&](const KvShard& shard) {
    return std::make_unique<TestMemory>(device,
                                        ShardBlockBytes(options_.layout, shard) * options_.blocks);
  };
  for (const KvShard& shard : options_.sender_shards) {
    sender_arenas_.push_back(allocate(shard));
    sender_arenas_.back()->Put(0, Pattern(sender_arenas_.back()->size(), sender_arenas_.size()));
  }
  for (const KvShard& shard : options_.receiver_shards) receiver_arenas_.push_back(allocate(shard));
  sender_side_ = std::make_unique<SenderSide>(sent_);
  receiver_side_ = std::make_unique<ReceiverSide>(*this);
  to_sender_ = std::make_unique<Stream>(*this, false);
  to_receiver_ = std::make_unique<Stream>(*this, true);
  auto sender = KvSender::Create(MakeOptions(kSenderName, options_.sender_shards, sender_arenas_),
                                 *sender_side_);
  BATON_CHECK(sender.ok(), "{}", Message(sender.status()));
  sender_ = *std::move(sender);
  auto receiver = KvReceiver::Create(
      MakeOptions(kReceiverName, options_.receiver_shards, receiver_arenas_), *receiver_side_);
  BATON_CHECK(receiver.ok(), "{}", Message(receiver.status()));
  receiver_ = *std::move(receiver);
  Status added = receiver_->AddPeer(WorkerId(kSenderName), to_sender_.get(), sender_->hello());
  BATON_CHECK(added.ok(), "{}", Message(added));
  added = sender_->AddPeer(WorkerId(kReceiverName), to_receiver_.get(), receiver_->hello());
  BATON_CHECK(added.ok(), "{}", Message(added));
}

HandoffPair::~HandoffPair() {
  DisconnectSender();
  DisconnectReceiver();
}

void HandoffPair::DisconnectSender() {
  sender_->RemovePeer(WorkerId(kReceiverName));
}

void HandoffPair::DisconnectReceiver() {
  receiver_->RemovePeer(WorkerId(kSenderName));
}

KvTransferOptions HandoffPair::MakeOptions(const char* name,
                                           const std::vector<KvShard>& shards,
                                           const Arenas& arenas) {
  KvTransferOptions result;
  result.worker = WorkerId(name);
  result.boot = kBoot;
  result.layout = options_.layout;
  for (size_t i = 0; i < shards.size(); ++i) {
    result.shards.push_back({shards[i], &arenas[i]->buffer(), options_.blocks});
  }
  result.dma = options_.dma;
  result.transport.require_transport = options_.transport;
  result.transport.fence_timeout = options_.times.fence;
  result.transport.receive_bytes_per_second = options_.receive_bytes_per_second;
  result.transport.listen_address = "127.0.0.1:0";
  result.times = options_.times;
  result.checksums = options_.checksums;
  result.op_bytes = options_.op_bytes;
  result.max_sessions = options_.max_sessions;
  result.make_transport = options_.make_transport;
  if (!options_.on_other_hosts) return result;
  hosts_.push_back(std::make_unique<ShardHosts>(result));
  return hosts_.back()->LeadingOptions();
}

void HandoffPair::Offer(SessionId id, uint32_t tokens, Duration timeout, Epoch epoch) {
  OfferRequest request;
  request.session = id;
  request.epoch = epoch;
  request.peer = WorkerId(kReceiverName);
  request.total_tokens = tokens;
  request.timeout = timeout;
  sender_->Offer(std::move(request));
}

void HandoffPair::Send(SessionId id,
                       std::span<const BlockId> source,
                       uint32_t chunk,
                       std::string payload,
                       std::span<const BlockId> state) {
  const auto groups = static_cast<size_t>(options_.layout.block_groups());
  const auto blocks = static_cast<uint32_t>(source.size() / groups);
  Offer(id, blocks * options_.layout.block_tokens, options_.offer_timeout);
  for (uint32_t first = 0; first < blocks; first += chunk) {
    const size_t count = std::min(chunk, blocks - first);
    const bool last = first + count == blocks;
    sender_->ChunkReady(id,
                        Epoch(1),
                        first,
                        source.subspan(first * groups, count * groups),
                        last ? state : std::span<const BlockId>());
  }
  sender_->Seal(id, Epoch(1), std::move(payload));
}

std::vector<BlockId> HandoffPair::granted(SessionId id) const {
  std::lock_guard lock(mutex_);
  return granted_.at(id);
}

std::vector<BlockId> HandoffPair::granted_state(SessionId id) const {
  std::lock_guard lock(mutex_);
  return granted_states_.at(id);
}

HandoffPair::Heads HandoffPair::ReadHeads(const std::vector<KvShard>& shards,
                                          const Arenas& arenas,
                                          std::span<const BlockId> blocks,
                                          size_t cache_group) const {
  Heads heads;
  for (size_t i = 0; i < shards.size(); ++i) {
    const size_t stride = arenas[i]->size() / options_.blocks;
    const bool state = options_.layout.groups[cache_group].state;
    const size_t bytes = state ? StateBlockBytes(options_.layout, shards[i]) : stride;
    std::vector<std::byte> content;
    for (const BlockId block : blocks) {
      std::ranges::copy(arenas[i]->Get(block.value() * stride, bytes), std::back_inserter(content));
    }
    for (const HeadInBlock& head : HeadsInBlock(options_.layout, cache_group, shards[i])) {
      const auto begin = content.begin() + static_cast<std::ptrdiff_t>(head.offset);
      heads[{head.layer, head.plane, head.head}].emplace_back(
          begin, begin + static_cast<std::ptrdiff_t>(head.bytes));
    }
  }
  return heads;
}

bool HandoffPair::SameContent(std::span<const BlockId> source,
                              std::span<const BlockId> destination) const {
  const KvLayout& layout = options_.layout;
  const auto groups = static_cast<size_t>(layout.block_groups());
  const auto blocks = static_cast<uint32_t>(source.size() / groups);
  const OwedBlocks owed = OwedBlocksOf(layout, blocks * static_cast<uint32_t>(layout.block_tokens));
  for (size_t i = 0; i < source.size(); ++i) {
    const size_t group = i % groups;
    if (i / groups < owed.first[group]) continue;
    if (!SameHeads({&source[i], 1}, {&destination[i], 1}, group)) return false;
  }
  return true;
}

bool HandoffPair::SameState(std::span<const BlockId> source,
                            std::span<const BlockId> destination) const {
  return SameHeads(source, destination, options_.layout.groups.size() - 1);
}

bool HandoffPair::SameHeads(std::span<const BlockId> source,
                            std::span<const BlockId> destination,
                            size_t cache_group) const {
  Heads sent = ReadHeads(options_.sender_shards, sender_arenas_, source, cache_group);
  for (const auto& [head, copies] :
       ReadHeads(options_.receiver_shards, receiver_arenas_, destination, cache_group)) {
    // Shards of the sender that hold the same head have different content here.
    for (const std::vector<std::byte>& copy : copies) {
      if (std::ranges::count(sent[head], copy) == 0) return false;
    }
  }
  return true;
}

uint64_t HandoffPair::AwaitBytes(uint64_t expected) {
  WaitUntil([&] { return receiver_->Stats().bytes >= expected; });
  return receiver_->Stats().bytes;
}

std::vector<BlockId> Blocks(uint32_t first, uint32_t count) {
  std::vector<BlockId> blocks;
  for (uint32_t i = 0; i < count; ++i) blocks.push_back(BlockId(first + i));
  return blocks;
}

void WaitUntil(const std::function<bool()>& condition) {
  const SteadyClock clock;
  const Time until = clock.Now() + std::chrono::seconds(10);
  while (!condition() && clock.Now() < until) std::this_thread::yield();
}

}  // namespace baton
