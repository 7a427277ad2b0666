#include "tests/fakes/thread_collective.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace baton {
namespace {

constexpr auto kLimit = std::chrono::seconds(60);

}  // namespace

class ThreadRank final : public Collective {
 public:
  ThreadRank(ThreadGroup& group, int rank) : group_(group), rank_(rank) {}
  int rank() const override { return rank_; }
  int size() const override { return group_.size(); }

  Status AllGather(const CollectiveRows& rows, std::span<const size_t> ends) override {
    return Gather("all-gather", rows, ends, /*keep=*/true);
  }
  Status GatherToFirst(const CollectiveRows& rows, std::span<const size_t> ends) override {
    return Gather("gather to first", rows, ends, /*keep=*/rank_ == 0);
  }
  Status AllReduce(std::span<float> values) override {
    const auto bytes = std::as_writable_bytes(values);
    std::vector<float> sum(values.size());
    Status status = group_.Meet(
        rank_, {"all-reduce", {bytes.data(), 1, bytes.size()}, {}}, [&](const auto offers) {
          for (size_t r = 0; r < offers.size(); ++r) {
            const auto* from = reinterpret_cast<const float*>(offers[r].rows.data);
            for (size_t i = 0; i < sum.size(); ++i) sum[i] = r == 0 ? from[i] : sum[i] + from[i];
          }
        });
    if (status.ok()) std::ranges::copy(sum, values.begin());
    return status;
  }
  Status BroadcastFromFirst(std::span<std::byte> bytes) override {
    return group_.Meet(
        rank_, {"broadcast", {bytes.data(), 1, bytes.size()}, {}}, [&](const auto offers) {
          if (rank_ != 0) std::memcpy(bytes.data(), offers[0].rows.data, bytes.size());
        });
  }
  Status Send(int to, std::span<const std::byte> bytes) override {
    return group_.Send(rank_, to, bytes);
  }
  Status Receive(int from, std::span<std::byte> bytes) override {
    return group_.Receive(from, rank_, bytes);
  }
  size_t bytes_ahead() const override { return SIZE_MAX; }
  Status status() const override { return group_.status(); }

 private:
  Status Gather(const char* operation,
                const CollectiveRows& rows,
                std::span<const size_t> ends,
                bool keep) {
    return group_.Meet(
        rank_, {operation, rows, {ends.begin(), ends.end()}}, [&](const auto offers) {
          for (size_t r = 0; keep && r < offers.size(); ++r) {
            if (static_cast<int>(r) == rank_) continue;
            const size_t begin = r == 0 ? 0 : ends[r - 1];
            for (int64_t row = 0; row < rows.count; ++row) {
              const auto i = static_cast<size_t>(row);
              std::memcpy(rows.data + i * rows.stride + begin,
                          offers[r].rows.data + i * offers[r].rows.stride + begin,
                          ends[r] - begin);
            }
          }
        });
  }

  ThreadGroup& group_;
  const int rank_;
};

ThreadGroup::ThreadGroup(int size)
    : offers_(static_cast<size_t>(size)), calls_(static_cast<size_t>(size)) {
  for (int rank = 0; rank < size; ++rank) {
    ranks_.push_back(std::make_unique<ThreadRank>(*this, rank));
  }
}

void ThreadGroup::FailAfter(int calls, const Status& error) {
  const std::lock_guard lock(mutex_);
  calls_left_ = calls;
  planned_ = error;
}

int ThreadGroup::calls() const {
  const std::lock_guard lock(mutex_);
  return calls_[0];
}

Status ThreadGroup::status() const {
  const std::lock_guard lock(mutex_);
  return broken_;
}

void ThreadGroup::Break(const Status& error) {
  const std::lock_guard lock(mutex_);
  if (broken_.ok()) broken_ = error;
  changed_.notify_all();
}

Status ThreadGroup::Count(int rank) {
  ++calls_[static_cast<size_t>(rank)];
  if (calls_left_ == 0 && broken_.ok()) {
    broken_ = planned_;
    changed_.notify_all();
  }
  if (calls_left_ > 0) --calls_left_;
  return broken_;
}

Status ThreadGroup::Wait(std::unique_lock<std::mutex>& lock) {
  if (++waiting_ == size()) {
    waiting_ = 0;
    ++round_;
    changed_.notify_all();
    return broken_;
  }
  const int round = round_;
  const auto over = [&] { return round_ != round || !broken_.ok(); };
  if (!changed_.wait_for(lock, kLimit, over)) {
    broken_ = MakeStatus(StatusCode::kDeadlineExceeded, "a rank did not come in time");
    changed_.notify_all();
  }
  return broken_;
}

Status ThreadGroup::Meet(int rank,
                         Offer offer,
                         const std::function<void(std::span<const Offer>)>& copy) {
  std::unique_lock lock(mutex_);
  BATON_RETURN_IF_ERROR(Count(rank));
  offers_[static_cast<size_t>(rank)] = std::move(offer);
  BATON_RETURN_IF_ERROR(Wait(lock));
  for (const Offer& other : offers_) {
    const Offer& mine = offers_[static_cast<size_t>(rank)];
    if (std::string_view(other.operation) == mine.operation && other.ends == mine.ends &&
        other.rows.count == mine.rows.count &&
        (!mine.ends.empty() || other.rows.stride == mine.rows.stride)) {
      continue;
    }
    broken_ = MakeStatus(StatusCode::kInternal,
                         "rank {} calls {} of {} rows, another rank {} of {}",
                         rank,
                         mine.operation,
                         mine.rows.count,
                         other.operation,
                         other.rows.count);
    changed_.notify_all();
    return broken_;
  }
  copy(offers_);
  // No rank may change its memory before all have copied.
  return Wait(lock);
}

Status ThreadGroup::Send(int from, int to, std::span<const std::byte> bytes) {
  const std::lock_guard lock(mutex_);
  BATON_RETURN_IF_ERROR(Count(from));
  messages_[{from, to}].emplace_back(bytes.begin(), bytes.end());
  changed_.notify_all();
  return OkStatus();
}

Status ThreadGroup::Receive(int from, int to, std::span<std::byte> bytes) {
  std::unique_lock lock(mutex_);
  BATON_RETURN_IF_ERROR(Count(to));
  auto& queue = messages_[{from, to}];
  if (!changed_.wait_for(lock, kLimit, [&] { return !queue.empty() || !broken_.ok(); })) {
    broken_ = MakeStatus(StatusCode::kDeadlineExceeded, "rank {} sent nothing", from);
    changed_.notify_all();
  }
  BATON_RETURN_IF_ERROR(broken_);
  const std::vector<std::byte> message = std::move(queue.front());
  queue.pop_front();
  if (message.size() != bytes.size()) {
    broken_ = MakeStatus(StatusCode::kInternal,
                         "rank {} sent {} bytes; {} were expected",
                         from,
                         message.size(),
                         bytes.size());
    changed_.notify_all();
    return broken_;
  }
  std::ranges::copy(message, bytes.begin());
  return OkStatus();
}

}  // namespace baton
