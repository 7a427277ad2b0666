#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "common/base/unique_fd.h"
#include "kvtransfer/group/shard_messages.h"
#include "kvtransfer/group/shard_port.h"

namespace baton {

// The leading rank's end of a ShardPort for one data plane: sends commands to the ranks on other
// hosts, waits for their answers, and keeps their events until they are taken. Thread-safe.
class ShardCalls final {
 public:
  // Errors: no descriptor is left. `port` outlives the result.
  static StatusOr<std::unique_ptr<ShardCalls>> Create(ShardPort& port, PlaneRole plane);
  ~ShardCalls();

  size_t ranks() const { return port_.shards().size(); }
  // Sends the command to every rank.
  void Send(const ShardCommand& command);
  // Sends the command, whose `call` is set here, to every rank, and waits for all answers. Entry i
  // is that of ShardPort::shards()[i]. Errors: the first error in an answer; DeadlineExceeded
  // naming the shard whose rank has not answered.
  StatusOr<std::vector<ShardEvent>> Call(ShardCommand command);

  uint64_t NewWriter() { return ++last_writer_; }
  // Readable when there are events.
  int wait_fd() const { return wake_.get(); }
  // The events for windows, or for a writer, since the last call.
  std::deque<ShardEvent> TakeWindowEvents();
  std::deque<ShardEvent> TakeWriterEvents(uint64_t writer);
  // Events for the writer are not kept any more.
  void Forget(uint64_t writer);

 private:
  ShardCalls(ShardPort& port, PlaneRole plane, UniqueFd wake)
      : port_(port), plane_(plane), wake_(std::move(wake)) {}
  void OnMessage(uint32_t shard, std::string_view message);
  void ClearWake() const;

  ShardPort& port_;
  const PlaneRole plane_;
  const UniqueFd wake_;  // eventfd
  std::atomic<uint64_t> last_writer_{0};
  std::mutex mutex_;  // of what follows
  std::condition_variable answered_;
  uint64_t last_call_ = 0;
  std::map<uint64_t, std::map<uint32_t, ShardEvent>> answers_;  // of calls under way, by shard
  std::deque<ShardEvent> window_events_;
  std::map<uint64_t, std::deque<ShardEvent>> writer_events_;
};

}  // namespace baton
