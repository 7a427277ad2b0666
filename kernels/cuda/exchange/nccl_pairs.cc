#include "kernels/cuda/exchange/nccl_pairs.h"

#include <sys/timerfd.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <stop_token>
#include <string_view>
#include <thread>
#include <vector>

#include "common/base/check.h"
#include "common/base/thread.h"
#include "common/base/unique_fd.h"
#include "kernels/cuda/device/cuda_status.h"
#include "kernels/cuda/device/stream.h"
#include "kernels/cuda/exchange/abort_gate.h"

namespace baton::cuda {
namespace {

static_assert(sizeof(ncclUniqueId) <= kMaxPairIdBytes);

constexpr int kReceiver = 0;
constexpr int kSender = 1;
constexpr int kRanks = 2;
// The thread blocks of one communicator. Each occupies an SM while it waits for the peer.
constexpr int kMaxBlocks = 32;
// NCCL has no file descriptor that reports progress, so its state is polled.
constexpr std::chrono::nanoseconds kPollInterval = std::chrono::microseconds(200);
// How long the issuing thread busy-polls for the next post before it sleeps. Waking a thread takes
// about 50 us.
constexpr Duration kBusyPoll = std::chrono::microseconds(500);
// How often a sleeping issuing thread asks NCCL for errors.
constexpr Duration kErrorInterval = std::chrono::milliseconds(100);

// The process has one gate for all devices, because the driver has one lock for all devices. The
// gate is never destroyed: aborts on a lost device may outlive main.
AbortGate& Gate() {
  static auto* const gate = new AbortGate({});
  return *gate;
}

class NcclPair final : public PairCommunicator {
 public:
  NcclPair(const NcclLibrary& nccl,
           const CudaDevice& device,
           bool sends,
           StagingPool& pool,
           std::unique_ptr<Buffer> staging)
      : nccl_(nccl), device_(device), sends_(sends), pool_(pool), staging_(std::move(staging)) {}
  ~NcclPair() override;
  NcclPair(const NcclPair&) = delete;

  // Starts to connect. Post and Poll return the error if it fails.
  void Start(const ncclUniqueId& id);

  const Buffer& staging() const override { return *staging_; }
  Status Post(uint64_t offset, uint64_t bytes) override;
  StatusOr<size_t> Poll() override;
  bool is_connected() const override { return is_connected_; }
  int wait_fd() const override { return timer_.get(); }
  void WatchEnds() override;
  void Abort() override;
  bool has_ended() const override { return has_ended_; }

 private:
  Status Open(const ncclUniqueId& id);

  struct Piece {
    uint64_t offset = 0;
    uint64_t bytes = 0;
  };

  std::string_view call() const { return sends_ ? "ncclSend" : "ncclRecv"; }
  // The body of the issuing thread, which waits for NCCL in place of the user's thread. No other
  // thread calls NCCL until this thread has ended.
  void IssuePosts(const std::stop_token& stop);
  // Waits until there is an unissued post, or a stop is requested.
  Status AwaitPost(const std::stop_token& stop);
  Status IssueNext(const std::stop_token& stop);
  // Waits until NCCL has issued its last call, or a stop is requested.
  Status AwaitIssued(std::string_view call, const std::stop_token& stop) const;
  Status RecordIssued();

  const NcclLibrary& nccl_;
  const CudaDevice& device_;
  const bool sends_;
  StagingPool& pool_;
  std::unique_ptr<Buffer> staging_;
  UniqueFd timer_;
  cudaStream_t stream_ = nullptr;
  ncclComm_t communicator_ = nullptr;
  std::atomic<bool> is_connected_ = false;
  std::atomic<bool> has_unissued_ = false;  // whether unissued_ has a post

  std::mutex mutex_;  // guards the next members
  std::condition_variable_any posted_;
  Status error_;  // that ended the issuing thread, or let it not start
  std::deque<Piece> unissued_;
  std::deque<cudaEvent_t> issued_;  // one event for each issued post that has not ended
  size_t pending_posts_ = 0;        // unissued posts, and issued ones that have not ended
  std::vector<cudaEvent_t> free_events_;

  std::atomic<bool> has_ended_ = false;
  // The threads use the other members, so they must be destroyed first.
  std::jthread issue_;
  std::jthread abort_;
};

NcclPair::~NcclPair() {
  BATON_CHECK(has_ended_ || communicator_ == nullptr,
              "an NCCL communicator is freed while it runs");
  if (abort_.joinable()) abort_.join();
  pool_.GiveBack(std::move(staging_));
  if (device_.MakeCurrent() != cudaSuccess) return;
  for (const cudaEvent_t event : issued_) cudaEventDestroy(event);
  for (const cudaEvent_t event : free_events_) cudaEventDestroy(event);
  if (stream_ != nullptr) cudaStreamDestroy(stream_);
}

Status NcclPair::Open(const ncclUniqueId& id) {
  timer_.Reset(::timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC));
  if (!timer_.valid()) {
    return MakeStatus(StatusCode::kResourceExhausted, "timerfd: {}", std::strerror(errno));
  }
  BATON_CUDA_RETURN_IF_ERROR(device_.MakeCurrent());
  // All KV copies have the lowest priority, so that the kernels of steps go first.
  BATON_RETURN_IF_ERROR(CreateStream(StreamPriority::kLeast, &stream_));
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  config.maxCTAs = kMaxBlocks;
  const ncclResult_t result = nccl_.comm_init_rank_config(
      &communicator_, kRanks, id, sends_ ? kSender : kReceiver, &config);
  return nccl_.ToStatus(result, "ncclCommInitRankConfig");
}

void NcclPair::Start(const ncclUniqueId& id) {
  error_ = Open(id);
  if (!error_.ok()) return;
  issue_ = StartThread("nccl issue", [this](const std::stop_token& stop) { IssuePosts(stop); });
}

Status NcclPair::Post(uint64_t offset, uint64_t bytes) {
  {
    const std::lock_guard lock(mutex_);
    BATON_RETURN_IF_ERROR(error_);
    Gate().OnPosted();
    unissued_.push_back({offset, bytes});
    ++pending_posts_;
    has_unissued_ = true;
  }
  posted_.notify_one();
  return OkStatus();
}

StatusOr<size_t> NcclPair::Poll() {
  uint64_t expirations = 0;
  (void)!::read(timer_.get(), &expirations, sizeof(expirations));
  BATON_CUDA_RETURN_IF_ERROR(device_.MakeCurrent());
  const std::lock_guard lock(mutex_);
  BATON_RETURN_IF_ERROR(error_);
  size_t ended = 0;
  while (!issued_.empty()) {
    const cudaError_t state = cudaEventQuery(issued_.front());
    if (state == cudaErrorNotReady) {
      cudaGetLastError();  // clears cudaErrorNotReady
      break;
    }
    BATON_RETURN_IF_ERROR(cuda::ToStatus(state, "a transfer through NCCL"));
    free_events_.push_back(issued_.front());
    issued_.pop_front();
    ++ended;
  }
  pending_posts_ -= ended;
  if (ended > 0) Gate().OnEnded(ended, ended);
  return ended;
}

void NcclPair::IssuePosts(const std::stop_token& stop) {
  Status status = cuda::ToStatus(device_.MakeCurrent(), "issuing transfers through NCCL");
  if (status.ok()) status = AwaitIssued("ncclCommInitRankConfig", stop);
  if (status.ok()) is_connected_ = true;
  while (status.ok() && !stop.stop_requested()) {
    status = AwaitPost(stop);
    if (status.ok()) status = IssueNext(stop);
  }
  const std::lock_guard lock(mutex_);
  error_ = std::move(status);
}

Status NcclPair::AwaitPost(const std::stop_token& stop) {
  const SteadyClock clock;
  const Time sleep_at = clock.Now() + kBusyPoll;
  while (!has_unissued_ && !stop.stop_requested() && clock.Now() < sleep_at) {
    std::this_thread::yield();
  }
  while (!has_unissued_ && !stop.stop_requested()) {
    BATON_RETURN_IF_ERROR(AwaitIssued(call(), stop));
    std::unique_lock lock(mutex_);
    posted_.wait_for(lock, stop, kErrorInterval, [&] { return !unissued_.empty(); });
  }
  return OkStatus();
}

// NCCL takes about 60 us to issue a post, and the next post must wait for that. A group of posts
// would take no longer than one post. But if the two ranks grouped their posts differently, their
// kernels would deadlock.
Status NcclPair::IssueNext(const std::stop_token& stop) {
  while (!has_unissued_ || !Gate().Start()) {
    if (stop.stop_requested()) return OkStatus();
    std::this_thread::sleep_for(kPollInterval);
  }
  Piece piece;
  {
    const std::lock_guard lock(mutex_);
    piece = unissued_.front();
    unissued_.pop_front();
    has_unissued_ = !unissued_.empty();
  }
  std::byte* const data = staging_->data() + piece.offset;
  BATON_RETURN_IF_ERROR(nccl_.ToStatus(
      sends_ ? nccl_.send(data, piece.bytes, ncclUint8, kReceiver, communicator_, stream_)
             : nccl_.receive(data, piece.bytes, ncclUint8, kSender, communicator_, stream_),
      call()));
  BATON_RETURN_IF_ERROR(AwaitIssued(call(), stop));
  return RecordIssued();
}

Status NcclPair::AwaitIssued(std::string_view call, const std::stop_token& stop) const {
  const SteadyClock clock;
  const Time sleep_at = clock.Now() + kBusyPoll;
  while (!stop.stop_requested()) {
    const ncclResult_t state = nccl_.StateOf(communicator_);
    if (state != ncclInProgress) return nccl_.ToStatus(state, call);
    // Polls less often after a while, because connecting takes half a second.
    if (clock.Now() < sleep_at) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(kPollInterval);
    }
  }
  return OkStatus();
}

Status NcclPair::RecordIssued() {
  cudaEvent_t event = nullptr;
  {
    const std::lock_guard lock(mutex_);
    if (!free_events_.empty()) {
      event = free_events_.back();
      free_events_.pop_back();
    }
  }
  if (event == nullptr) {
    BATON_CUDA_RETURN_IF_ERROR(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  }
  const cudaError_t recorded = cudaEventRecord(event, stream_);
  const std::lock_guard lock(mutex_);
  if (recorded == cudaSuccess) {
    issued_.push_back(event);
  } else {
    free_events_.push_back(event);
  }
  return cuda::ToStatus(recorded, "a transfer through NCCL");
}

void NcclPair::WatchEnds() {
  {
    const std::lock_guard lock(mutex_);
    if (is_connected_ && pending_posts_ == 0) return;
  }
  itimerspec once{};
  once.it_value.tv_nsec = kPollInterval.count();
  ::timerfd_settime(timer_.get(), 0, &once, nullptr);
}

void NcclPair::Abort() {
  if (communicator_ == nullptr) {
    has_ended_ = true;
    return;
  }
  issue_.request_stop();
  abort_ = StartThread("nccl abort", [this](const std::stop_token& /*stop*/) {
    if (issue_.joinable()) issue_.join();
    (void)device_.MakeCurrent();
    Gate().OnEnded(pending_posts_, pending_posts_ - unissued_.size());
    Gate().Abort([this] { (void)nccl_.comm_abort(communicator_); });
    // The destructor destroys the stream, so its last kernels must have ended.
    (void)cudaStreamSynchronize(stream_);
    has_ended_ = true;
  });
}

}  // namespace

StatusOr<std::string> NcclPairs::MakeId() {
  ncclUniqueId id{};
  BATON_RETURN_IF_ERROR(nccl_.ToStatus(nccl_.get_unique_id(&id), "ncclGetUniqueId"));
  return std::string(id.internal, sizeof(id.internal));
}

StatusOr<std::unique_ptr<PairCommunicator>> NcclPairs::Make(
    const PairCommunicator::Options& options) {
  ncclUniqueId id{};
  if (options.id.size() != sizeof(id.internal)) {
    return InvalidArgument(
        "an NCCL id has {} bytes, not {}", sizeof(id.internal), options.id.size());
  }
  std::memcpy(id.internal, options.id.data(), sizeof(id.internal));
  BATON_ASSIGN_OR_RETURN(auto staging, staging_.Take(options.staging_bytes));
  auto pair =
      std::make_unique<NcclPair>(nccl_, device_, options.sends, staging_, std::move(staging));
  pair->Start(id);
  return pair;
}

}  // namespace baton::cuda
