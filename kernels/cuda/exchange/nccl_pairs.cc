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
#include "kernels/abort_gate.h"
#include "kernels/cuda/device/cuda_status.h"
#include "kernels/cuda/device/stream.h"

namespace baton::cuda {
namespace {

static_assert(sizeof(ncclUniqueId) <= kMaxPairIdBytes);

constexpr int kReceiver = 0;
constexpr int kSender = 1;
constexpr int kRanks = 2;
// Thread blocks of one communicator. Each occupies an SM while it waits for the peer.
constexpr int kMaxBlocks = 32;
// NCCL has no file descriptor that reports progress.
constexpr std::chrono::nanoseconds kLookInterval = std::chrono::microseconds(200);
// How long the issuing thread busy-polls for the next post before it sleeps. Waking a thread takes
// about 50 us.
constexpr Duration kBusyPoll = std::chrono::microseconds(500);
// How often a sleeping issuing thread asks NCCL for errors.
constexpr Duration kErrorInterval = std::chrono::milliseconds(100);

// One for all devices of the process, as the driver's lock. Never destroyed, because aborts of
// devices that are lost may outlive main.
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

  Status Open(const ncclUniqueId& id);

  const Buffer& staging() const override { return *staging_; }
  Status Post(uint64_t offset, uint64_t bytes) override;
  StatusOr<size_t> Poll() override;
  bool is_connected() const override { return is_connected_; }
  int wait_fd() const override { return timer_.get(); }
  void WatchEnds() override;
  void Abort() override;
  bool has_ended() const override { return has_ended_; }

 private:
  struct Piece {
    uint64_t offset = 0;
    uint64_t bytes = 0;
  };

  std::string_view call() const { return sends_ ? "ncclSend" : "ncclRecv"; }
  // The issuing thread, so that the user's thread does not wait for NCCL. Until it has ended, no
  // other thread calls NCCL.
  void IssuePosts(const std::stop_token& stop);
  Status AwaitPost(const std::stop_token& stop);
  Status IssueFirst(const std::stop_token& stop);
  // Waits until NCCL has done what it has begun, or a stop is requested.
  Status Settle(std::string_view call, const std::stop_token& stop) const;
  Status RecordEnd();

  const NcclLibrary& nccl_;
  const CudaDevice& device_;
  const bool sends_;
  StagingPool& pool_;
  std::unique_ptr<Buffer> staging_;
  UniqueFd timer_;
  cudaStream_t stream_ = nullptr;
  ncclComm_t communicator_ = nullptr;
  std::atomic<bool> is_connected_ = false;
  std::atomic<bool> has_posts_ = false;  // waiting_ is not empty

  std::mutex mutex_;  // guards the next members
  std::condition_variable_any posted_;
  Status error_;  // of the issuing thread
  std::deque<Piece> waiting_;
  std::deque<cudaEvent_t> issued_;  // recorded after each post
  size_t posts_ = 0;                // that have not ended; all but the waiting ones were started
  std::vector<cudaEvent_t> free_events_;

  std::atomic<bool> has_ended_ = false;
  // The last members, because the threads use the others.
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
  // Of the lowest priority, as all KV copies: steps go first.
  BATON_RETURN_IF_ERROR(CreateStream(StreamPriority::kLeast, &stream_));
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  config.maxCTAs = kMaxBlocks;
  const ncclResult_t result = nccl_.comm_init_rank_config(
      &communicator_, kRanks, id, sends_ ? kSender : kReceiver, &config);
  BATON_RETURN_IF_ERROR(nccl_.ToStatus(result, "ncclCommInitRankConfig"));
  issue_ = StartThread("nccl issue", [this](const std::stop_token& stop) { IssuePosts(stop); });
  return OkStatus();
}

Status NcclPair::Post(uint64_t offset, uint64_t bytes) {
  Gate().OnPosted();
  {
    const std::lock_guard lock(mutex_);
    waiting_.push_back({offset, bytes});
    ++posts_;
    has_posts_ = true;
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
      cudaGetLastError();  // clears it
      break;
    }
    BATON_RETURN_IF_ERROR(cuda::ToStatus(state, "a transfer through NCCL"));
    free_events_.push_back(issued_.front());
    issued_.pop_front();
    ++ended;
  }
  posts_ -= ended;
  if (ended > 0) Gate().OnEnded(ended, ended);
  return ended;
}

void NcclPair::IssuePosts(const std::stop_token& stop) {
  Status status = cuda::ToStatus(device_.MakeCurrent(), "issuing transfers through NCCL");
  if (status.ok()) status = Settle("ncclCommInitRankConfig", stop);
  if (status.ok()) is_connected_ = true;
  while (status.ok() && !stop.stop_requested()) {
    status = AwaitPost(stop);
    if (status.ok()) status = IssueFirst(stop);
  }
  const std::lock_guard lock(mutex_);
  error_ = std::move(status);
}

// Returns when there is a post, or a stop was requested.
Status NcclPair::AwaitPost(const std::stop_token& stop) {
  const SteadyClock clock;
  const Time sleep_at = clock.Now() + kBusyPoll;
  while (!has_posts_ && !stop.stop_requested() && clock.Now() < sleep_at) {
    std::this_thread::yield();
  }
  while (!has_posts_ && !stop.stop_requested()) {
    BATON_RETURN_IF_ERROR(Settle(call(), stop));
    std::unique_lock lock(mutex_);
    posted_.wait_for(lock, stop, kErrorInterval, [&] { return !waiting_.empty(); });
  }
  return OkStatus();
}

// NCCL takes some 60 us to issue a post; only then the next one may follow. Posts in one group
// would take no longer together, but when the other end groups them differently, the kernels of
// both ends wait for each other for ever.
Status NcclPair::IssueFirst(const std::stop_token& stop) {
  while (!has_posts_ || !Gate().Start()) {
    if (stop.stop_requested()) return OkStatus();
    std::this_thread::sleep_for(kLookInterval);
  }
  Piece piece;
  {
    const std::lock_guard lock(mutex_);
    piece = waiting_.front();
    waiting_.pop_front();
    has_posts_ = !waiting_.empty();
  }
  std::byte* const data = staging_->data() + piece.offset;
  BATON_RETURN_IF_ERROR(nccl_.ToStatus(
      sends_ ? nccl_.send(data, piece.bytes, ncclUint8, kReceiver, communicator_, stream_)
             : nccl_.receive(data, piece.bytes, ncclUint8, kSender, communicator_, stream_),
      call()));
  BATON_RETURN_IF_ERROR(Settle(call(), stop));
  return RecordEnd();
}

Status NcclPair::Settle(std::string_view call, const std::stop_token& stop) const {
  const SteadyClock clock;
  const Time sleep_at = clock.Now() + kBusyPoll;
  while (!stop.stop_requested()) {
    const ncclResult_t state = nccl_.StateOf(communicator_);
    if (state != ncclInProgress) return nccl_.ToStatus(state, call);
    // Connecting takes half a second.
    if (clock.Now() < sleep_at) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(kLookInterval);
    }
  }
  return OkStatus();
}

Status NcclPair::RecordEnd() {
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
    if (is_connected_ && posts_ == 0) return;
  }
  itimerspec once{};
  once.it_value.tv_nsec = kLookInterval.count();
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
    Gate().OnEnded(posts_, posts_ - waiting_.size());
    Gate().Abort([this] { (void)nccl_.comm_abort(communicator_); });
    // The stream still belongs to this object, and its last kernels must have left it.
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
        "an id of NCCL has {} bytes, not {}", sizeof(id.internal), options.id.size());
  }
  std::memcpy(id.internal, options.id.data(), sizeof(id.internal));
  BATON_ASSIGN_OR_RETURN(auto staging, staging_.Take(options.staging_bytes));
  auto pair =
      std::make_unique<NcclPair>(nccl_, device_, options.sends, staging_, std::move(staging));
  Status opened = pair->Open(id);
  if (opened.ok()) return pair;
  pair->Abort();
  aborted_.Add(std::move(pair));
  return opened;
}

}  // namespace baton::cuda
