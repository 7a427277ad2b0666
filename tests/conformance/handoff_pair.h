#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "kvtransfer/receiver.h"
#include "kvtransfer/sender.h"
#include "tests/conformance/shard_hosts.h"
#include "tests/conformance/test_memory.h"

namespace baton {

// The callbacks of one side's session, and how it ended.
struct SessionLog {
  int offers = 0;
  bool granted = false;  // sender: GRANT has come
  int refusals = 0;
  int ends = 0;  // OnFinished, OnCommitted, OnReleased or OnWithdrawn
  bool committed = false;
  bool withdrawn = false;
  Status status;
  std::string payload;
  TransferStats stats;
};

// Collects callbacks and lets a test wait for them. Thread-safe.
class SessionLogs final {
 public:
  void Change(SessionId id, const std::function<void(SessionLog&)>& change);
  SessionLog Get(SessionId id) const;
  // False if `condition` does not hold within 30 s, three times the default time-out of an offer.
  bool Wait(SessionId id, const std::function<bool(const SessionLog&)>& condition) const;
  bool WaitEnd(SessionId id) const {
    return Wait(id, [](const SessionLog& log) { return log.ends > 0; });
  }

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  std::map<SessionId, SessionLog> logs_;
};

// Marks the session as granted, if `envelope` is its GRANT. Call it after KvSender::OnMessage:
// later calls of the sender then follow the grant.
void NoteGrant(const Envelope& envelope, SessionLogs& logs);

// Blocks first, first + 1, …, first + count - 1.
std::vector<BlockId> Blocks(uint32_t first, uint32_t count);

// Polls until `condition` holds, for at most ten seconds. The caller checks the condition again.
void WaitUntil(const std::function<bool()>& condition);

// A KvSender and a KvReceiver in one process, each with its own arenas, connected by control
// streams that pass messages on directly. Unless `on_offer` is set, the receiver grants all blocks,
// in reverse order.
class HandoffPair final {
 public:
  struct Options {
    std::string transport = "tcp";
    KvLayout layout = DenseLayout(
        {.layers = 2, .kv_heads = 4, .head_dim = 8, .block_tokens = 4, .dtype = DType::kF16});
    std::vector<KvShard> sender_shards;  // empty: the whole model
    std::vector<KvShard> receiver_shards;
    bool on_other_hosts = false;  // all shards of a side but its first (ShardHosts)
    uint32_t blocks = 64;
    bool checksums = true;
    // Long enough for a machine that pauses for a while; see Impatient().
    SessionTimes times;
    Duration offer_timeout = std::chrono::seconds(10);  // of Send
    size_t op_bytes = size_t{1} << 20;
    uint32_t max_sessions = 1024;
    uint64_t receive_bytes_per_second = 0;  // as TransportOptions
    Device* device = nullptr;               // of the arenas; null: the CPU
    Dma* dma = nullptr;
    // As KvTransferOptions::make_transport.
    std::function<StatusOr<std::unique_ptr<Transport>>(std::string_view)> make_transport;

    // Both arenas on one GPU.
    static Options OverCudaIpc(Device& gpu, Dma& dma) {
      Options options;
      options.transport = "cuda_ipc";
      options.device = &gpu;
      options.dma = &dma;
      return options;
    }
  };

  // For tests in which one side becomes silent and the other has to detect it.
  static SessionTimes Impatient() {
    return {.renew = std::chrono::milliseconds(50),
            .lease = std::chrono::milliseconds(500),
            .drain = std::chrono::milliseconds(300),
            .fence = std::chrono::milliseconds(300)};
  }

  explicit HandoffPair(Options options);
  ~HandoffPair();

  // Called on the receiver's thread for every offer, instead of granting all blocks.
  std::function<void(SessionId, Epoch, const Offer&)> on_offer;
  // Called for every control message before it is delivered; false: the message is lost.
  std::function<bool(const Envelope&, bool to_receiver)> filter;

  void Offer(SessionId id,
             uint32_t tokens,
             Duration timeout = std::chrono::seconds(10),
             Epoch epoch = Epoch(1));
  // Offers blocks `source` and `state` (as of ChunkReady), passes them to ChunkReady in chunks of
  // `chunk` blocks of the prompt, and seals with `payload`.
  void Send(SessionId id,
            std::span<const BlockId> source,
            uint32_t chunk,
            std::string payload,
            std::span<const BlockId> state = {});
  // The blocks granted for `id`, in order.
  std::vector<BlockId> granted(SessionId id) const;
  std::vector<BlockId> granted_state(SessionId id) const;
  // Whether blocks `destination` of the receiver's arenas equal blocks `source` of the sender's
  // arenas.
  bool SameContent(std::span<const BlockId> source, std::span<const BlockId> destination) const;
  // The same of the state in these blocks.
  bool SameState(std::span<const BlockId> source, std::span<const BlockId> destination) const;

  // Waits until the receiver has `expected` bytes or more, and returns the number.
  uint64_t AwaitBytes(uint64_t expected);

  KvSender& sender() { return *sender_; }
  KvReceiver& receiver() { return *receiver_; }
  const SessionLogs& sent() const { return sent_; }
  const SessionLogs& received() const { return received_; }
  SessionLogs& received() { return received_; }
  TestMemory& sender_arena(size_t shard) { return *sender_arenas_[shard]; }
  TestMemory& receiver_arena(size_t shard) { return *receiver_arenas_[shard]; }
  void DisconnectSender();  // as if the control stream broke
  void DisconnectReceiver();

  static constexpr BootId kBoot{1};  // of both sides
  static constexpr const char* kSenderName = "prefill-0";
  static constexpr const char* kReceiverName = "decode-0";

 private:
  using Arenas = std::vector<std::unique_ptr<TestMemory>>;
  class SenderSide;
  class ReceiverSide;
  class Stream;

  KvTransferOptions MakeOptions(const char* name,
                                const std::vector<KvShard>& shards,
                                const Arenas& arenas);
  // By (layer, plane, head): one copy for each shard that holds the head.
  using Heads = std::map<std::tuple<int32_t, size_t, int32_t>, std::vector<std::vector<std::byte>>>;
  // Of one block, or of a state in `blocks`.
  Heads ReadHeads(const std::vector<KvShard>& shards,
                  const Arenas& arenas,
                  std::span<const BlockId> blocks,
                  size_t cache_group) const;
  // Whether the receiver's heads equal those of a sender's shard.
  bool SameHeads(std::span<const BlockId> source,
                 std::span<const BlockId> destination,
                 size_t cache_group) const;

  Options options_;
  Arenas sender_arenas_;
  Arenas receiver_arenas_;
  SessionLogs sent_;
  SessionLogs received_;
  mutable std::mutex mutex_;
  std::map<SessionId, std::vector<BlockId>> granted_;
  std::map<SessionId, std::vector<BlockId>> granted_states_;
  uint32_t next_block_ = 0;
  std::unique_ptr<SenderSide> sender_side_;
  std::unique_ptr<ReceiverSide> receiver_side_;
  std::unique_ptr<Stream> to_sender_;
  std::unique_ptr<Stream> to_receiver_;
  std::vector<std::unique_ptr<ShardHosts>> hosts_;  // of the sender and of the receiver
  std::unique_ptr<KvSender> sender_;
  std::unique_ptr<KvReceiver> receiver_;
};

}  // namespace baton
