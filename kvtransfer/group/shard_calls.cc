#include "kvtransfer/group/shard_calls.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace baton {
namespace {

// The longest wait for an answer. The ranks of a worker that do not live are found by others.
constexpr Duration kAnswerLimit = std::chrono::seconds(5);

}  // namespace

StatusOr<std::unique_ptr<ShardCalls>> ShardCalls::Create(ShardPort& port, PlaneRole plane) {
  UniqueFd wake(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (!wake.valid()) {
    return MakeStatus(
        StatusCode::kResourceExhausted, "KV transfer: eventfd: {}", std::strerror(errno));
  }
  std::unique_ptr<ShardCalls> calls(new ShardCalls(port, plane, std::move(wake)));
  port.Listen(plane, [calls = calls.get()](uint32_t shard, std::string_view message) {
    calls->OnMessage(shard, message);
  });
  return calls;
}

ShardCalls::~ShardCalls() {
  port_.Listen(plane_, nullptr);
}

void ShardCalls::Send(const ShardCommand& command) {
  const std::string message = Encode(command);
  for (const uint32_t shard : port_.shards()) (void)port_.Send(shard, plane_, message);
}

StatusOr<std::vector<ShardEvent>> ShardCalls::Call(ShardCommand command) {
  {
    const std::lock_guard lock(mutex_);
    command.call = ++last_call_;
    answers_[command.call];
  }
  Send(command);
  std::unique_lock lock(mutex_);
  std::map<uint32_t, ShardEvent>& answers = answers_.at(command.call);
  answered_.wait_for(lock, kAnswerLimit, [&] { return answers.size() == ranks(); });
  Status status;
  std::vector<ShardEvent> events;
  for (const uint32_t shard : port_.shards()) {
    const auto found = answers.find(shard);
    if (found == answers.end()) {
      status.Update(MakeStatus(StatusCode::kDeadlineExceeded,
                               "the rank of shard {} has not answered within {:.1f} s",
                               shard,
                               ToSeconds(kAnswerLimit)));
      continue;
    }
    status.Update(found->second.status);
    events.push_back(std::move(found->second));
  }
  answers_.erase(command.call);
  if (!status.ok()) return status;
  return events;
}

void ShardCalls::OnMessage(uint32_t shard, std::string_view message) {
  auto decoded = DecodeShardEvent(message);
  if (!decoded.ok()) return;
  ShardEvent event = *std::move(decoded);
  const uint64_t writer = event.writer;
  {
    const std::lock_guard lock(mutex_);
    switch (event.kind) {
      case ShardEvent::Kind::kAnswer:
        if (const auto call = answers_.find(event.call); call != answers_.end()) {
          call->second[shard] = std::move(event);
        }
        answered_.notify_all();
        return;
      case ShardEvent::Kind::kPosted:
      case ShardEvent::Kind::kWritten:
      case ShardEvent::Kind::kWriteLost:
        writer_events_[writer].push_back(std::move(event));
        break;
      default:
        window_events_.push_back(std::move(event));
        break;
    }
  }
  const uint64_t one = 1;
  (void)!::write(wake_.get(), &one, sizeof(one));
}

void ShardCalls::ClearWake() const {
  uint64_t count = 0;
  (void)!::read(wake_.get(), &count, sizeof(count));
}

std::deque<ShardEvent> ShardCalls::TakeWindowEvents() {
  ClearWake();
  const std::lock_guard lock(mutex_);
  return std::exchange(window_events_, {});
}

std::deque<ShardEvent> ShardCalls::TakeWriterEvents(uint64_t writer) {
  ClearWake();
  const std::lock_guard lock(mutex_);
  const auto found = writer_events_.find(writer);
  if (found == writer_events_.end()) return {};
  return std::exchange(found->second, {});
}

void ShardCalls::Forget(uint64_t writer) {
  const std::lock_guard lock(mutex_);
  writer_events_.erase(writer);
}

}  // namespace baton
