#include "tests/fakes/fake_pairs.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <deque>
#include <functional>
#include <optional>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "common/base/check.h"
#include "common/base/hash.h"
#include "common/base/local_socket.h"

namespace baton {
namespace {

constexpr std::string_view kIdPrefix = "baton-fake-pair-";
constexpr size_t kPartBytes = size_t{256} << 10;
constexpr int kLookMs = 2;

}  // namespace

class FakePairs::Communicator final : public PairCommunicator {
 public:
  Communicator(FakePairs& pairs,
               const Options& options,
               std::unique_ptr<Buffer> staging,
               UniqueFd listener)
      : pairs_(pairs),
        options_(options),
        staging_(std::move(staging)),
        listener_(std::move(listener)),
        event_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    ++pairs_.alive_;
    thread_ = std::jthread([this] { Run(); });
  }
  ~Communicator() override {
    BATON_CHECK(has_ended_, "a communicator is destroyed before its abort has ended");
    thread_.join();
    pairs_.staging_.GiveBack(std::move(staging_));
    --pairs_.alive_;
  }

  const Buffer& staging() const override { return *staging_; }
  Status Post(uint64_t offset, uint64_t bytes) override {
    BATON_CHECK(!is_aborted_, "a post after Abort");
    BATON_CHECK(offset + bytes <= staging_->size(), "a post beyond the staging memory");
    {
      std::lock_guard lock(mutex_);
      posts_.push_back({offset, bytes});
      ++running_;
      ++*pairs_.running_;
    }
    changed_.notify_all();
    return OkStatus();
  }
  StatusOr<size_t> Poll() override {
    BATON_CHECK(!is_aborted_, "a Poll after Abort");
    uint64_t value = 0;
    (void)!::read(event_.get(), &value, sizeof(value));
    std::lock_guard lock(mutex_);
    is_watched_ = false;
    sees_connection_ = is_connected_;
    BATON_RETURN_IF_ERROR(failure_);
    return std::exchange(ended_, 0);
  }
  bool is_connected() const override { return sees_connection_; }
  int wait_fd() const override { return event_.get(); }
  void WatchEnds() override {
    std::lock_guard lock(mutex_);
    is_watched_ = true;
    if (ended_ > 0 || !failure_.ok() || is_connected_ != sees_connection_) Signal();
  }
  void Abort() override {
    {
      std::lock_guard lock(mutex_);
      is_aborted_ = true;
      *pairs_.running_ -= std::exchange(running_, 0);
    }
    changed_.notify_all();
  }
  bool has_ended() const override { return has_ended_; }

 private:
  struct Piece {
    uint64_t offset = 0;
    uint64_t bytes = 0;
  };

  void Signal() const {
    const uint64_t one = 1;
    (void)!::write(event_.get(), &one, sizeof(one));
  }
  void Change(const std::function<void()>& change) {
    std::lock_guard lock(mutex_);
    change();
    if (is_watched_) Signal();
  }

  void Run() {
    if (Connect()) {
      Change([this] { is_connected_ = true; });
      while (const std::optional<Piece> piece = Next()) {
        if (!Move(*piece)) break;
        Change([this] {
          ++ended_;
          if (is_aborted_) return;
          --running_;
          --*pairs_.running_;
        });
      }
    }
    while (!is_aborted_) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    socket_.Reset();
    EndAbort();
  }

  // A device's kernel may write until the abort has ended.
  void EndAbort() {
    const SteadyClock clock;
    const Time begin = clock.Now();
    const std::vector<std::byte> garbage(std::min(staging_->size(), kPartBytes), std::byte{0xEE});
    do {
      if (!options_.sends) (void)pairs_.memory_.CopyIn(*staging_, 0, garbage);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    } while (clock.Now() < begin + pairs_.faults().abort_time);
    has_ended_ = true;
  }

  bool Connect() {
    while (!is_aborted_) {
      if (!pairs_.faults().connects) {
        std::this_thread::sleep_for(std::chrono::milliseconds(kLookMs));
        continue;
      }
      if (options_.sends) {
        auto socket = ConnectLocal(options_.id, SOCK_STREAM);
        if (socket.ok()) socket_ = *std::move(socket);
      } else {
        pollfd ready{listener_.get(), POLLIN, 0};
        ::poll(&ready, 1, kLookMs);
        socket_.Reset(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      }
      if (socket_.valid()) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(kLookMs));
    }
    return false;
  }

  std::optional<Piece> Next() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return is_aborted_ || !posts_.empty(); });
    if (is_aborted_) return std::nullopt;
    const Piece piece = posts_.front();
    posts_.pop_front();
    return piece;
  }

  // False: the communicator hangs or has failed.
  bool Move(const Piece& piece) {
    const int post = pairs_.posts_++;
    while (pairs_.faults().waits && !is_aborted_) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    std::vector<std::byte> part(std::min<uint64_t>(kPartBytes, piece.bytes));
    for (uint64_t at = 0; at < piece.bytes; at += part.size()) {
      part.resize(std::min<uint64_t>(part.size(), piece.bytes - at));
      if (post >= pairs_.faults().hangs_from) return false;
      if (post >= pairs_.faults().fails_from) return Fail("unhandled system error");
      if (options_.sends) {
        (void)pairs_.memory_.CopyOut(*staging_, piece.offset + at, part);
      }
      if (!MovePart(part)) return false;
      if (!options_.sends) (void)pairs_.memory_.CopyIn(*staging_, piece.offset + at, part);
    }
    return true;
  }

  bool MovePart(std::span<std::byte> part) {
    while (!part.empty()) {
      if (is_aborted_) return false;
      const ssize_t moved = options_.sends
                                ? ::send(socket_.get(), part.data(), part.size(), MSG_NOSIGNAL)
                                : ::recv(socket_.get(), part.data(), part.size(), 0);
      if (moved > 0) {
        part = part.subspan(static_cast<size_t>(moved));
        continue;
      }
      if (moved < 0 && errno == EAGAIN) {
        pollfd ready{socket_.get(), static_cast<short>(options_.sends ? POLLOUT : POLLIN), 0};
        ::poll(&ready, 1, kLookMs);
        continue;
      }
      return pairs_.faults().reports_lost_peer ? Fail("remote process exited") : false;
    }
    return true;
  }

  bool Fail(std::string_view why) {
    Change([&] { failure_ = MakeStatus(StatusCode::kUnavailable, "fake NCCL: {}", why); });
    return false;
  }

  FakePairs& pairs_;
  const Options options_;
  std::unique_ptr<Buffer> staging_;
  const UniqueFd listener_;
  UniqueFd socket_;
  const UniqueFd event_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Piece> posts_;
  size_t ended_ = 0;
  int running_ = 0;  // posts that have not ended; 0 after Abort
  bool is_connected_ = false;
  bool sees_connection_ = false;
  bool is_watched_ = false;
  Status failure_;
  std::atomic<bool> is_aborted_ = false;
  std::atomic<bool> has_ended_ = false;
  std::jthread thread_;  // the last member, because the thread uses the others
};

FakePairs::~FakePairs() {
  BATON_CHECK(alive_ == 0, "{} communicators outlive their exchange", alive_.load());
}

StatusOr<std::string> FakePairs::DeviceId() const {
  std::lock_guard lock(mutex_);
  return name_.empty() ? fmt::format("fake-{:016x}", RandomId()) : name_;
}

StatusOr<std::string> FakePairs::MakeId() {
  return fmt::format("{}{:016x}", kIdPrefix, RandomId());
}

StatusOr<std::unique_ptr<PairCommunicator>> FakePairs::Make(
    const PairCommunicator::Options& options) {
  if (!options.id.starts_with(kIdPrefix)) {
    return InvalidArgument("'{}' is not the id of a pair", options.id);
  }
  UniqueFd listener;
  if (!options.sends) {
    BATON_ASSIGN_OR_RETURN(listener, ListenLocal(options.id, SOCK_STREAM));
  }
  BATON_ASSIGN_OR_RETURN(auto staging, staging_.Take(options.staging_bytes));
  ++made_;
  return std::make_unique<Communicator>(*this, options, std::move(staging), std::move(listener));
}

void FakePairs::NameDevice(std::string name) {
  std::lock_guard lock(mutex_);
  name_ = std::move(name);
}

void FakePairs::SetFaults(const PairFaults& faults) {
  std::lock_guard lock(mutex_);
  faults_ = faults;
}

PairFaults FakePairs::faults() const {
  std::lock_guard lock(mutex_);
  return faults_;
}

}  // namespace baton
