#include "kernels/cuda/exchange/nccl_pairs.h"

#include <sys/timerfd.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <deque>
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

  // Asks whether the call under way has been issued.
  Status Settle();
  Status IssueFirst();
  Status RecordEnd();
  StatusOr<size_t> CountEnded();

  const NcclLibrary& nccl_;
  const CudaDevice& device_;
  const bool sends_;
  StagingPool& pool_;
  std::unique_ptr<Buffer> staging_;
  UniqueFd timer_;
  cudaStream_t stream_ = nullptr;
  ncclComm_t communicator_ = nullptr;
  bool is_connected_ = false;
  bool is_settling_ = false;  // a call has returned ncclInProgress, so no other call may follow
  std::deque<Piece> waiting_;
  std::deque<cudaEvent_t> issued_;  // recorded after each post
  size_t started_ = 0;              // posts that were started and have not ended
  std::vector<cudaEvent_t> free_events_;
  std::atomic<bool> has_ended_ = false;
  std::jthread abort_;  // the last member, because the thread uses the others
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
  is_settling_ = true;
  return nccl_.ToStatus(result, "ncclCommInitRankConfig");
}

Status NcclPair::Post(uint64_t offset, uint64_t bytes) {
  waiting_.push_back({offset, bytes});
  Gate().OnPosted();
  return OkStatus();
}

StatusOr<size_t> NcclPair::Poll() {
  uint64_t expirations = 0;
  (void)!::read(timer_.get(), &expirations, sizeof(expirations));
  BATON_CUDA_RETURN_IF_ERROR(device_.MakeCurrent());
  BATON_RETURN_IF_ERROR(Settle());
  BATON_RETURN_IF_ERROR(IssueFirst());
  return CountEnded();
}

Status NcclPair::Settle() {
  ncclResult_t state = ncclSuccess;
  const ncclResult_t asked = nccl_.comm_get_async_error(communicator_, &state);
  BATON_RETURN_IF_ERROR(nccl_.ToStatus(asked, "ncclCommGetAsyncError"));
  if (state == ncclInProgress) return OkStatus();
  BATON_RETURN_IF_ERROR(nccl_.ToStatus(state, sends_ ? "ncclSend" : "ncclRecv"));
  if (!is_settling_) return OkStatus();
  is_settling_ = false;
  if (is_connected_) return RecordEnd();
  is_connected_ = true;
  return OkStatus();
}

// NCCL's own thread issues a post, which takes some 60 us; only then the next one may follow. Posts
// in one group would take no longer together, but when the other end groups them differently, the
// kernels of both ends wait for each other for ever.
Status NcclPair::IssueFirst() {
  if (is_settling_ || waiting_.empty() || !Gate().Start()) return OkStatus();
  ++started_;
  const Piece piece = waiting_.front();
  waiting_.pop_front();
  std::byte* const data = staging_->data() + piece.offset;
  const ncclResult_t result =
      sends_ ? nccl_.send(data, piece.bytes, ncclUint8, kReceiver, communicator_, stream_)
             : nccl_.receive(data, piece.bytes, ncclUint8, kSender, communicator_, stream_);
  BATON_RETURN_IF_ERROR(nccl_.ToStatus(result, sends_ ? "ncclSend" : "ncclRecv"));
  is_settling_ = result == ncclInProgress;
  return is_settling_ ? OkStatus() : RecordEnd();
}

Status NcclPair::RecordEnd() {
  cudaEvent_t event = nullptr;
  if (free_events_.empty()) {
    BATON_CUDA_RETURN_IF_ERROR(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  } else {
    event = free_events_.back();
    free_events_.pop_back();
  }
  issued_.push_back(event);
  BATON_CUDA_RETURN_IF_ERROR(cudaEventRecord(event, stream_));
  return OkStatus();
}

StatusOr<size_t> NcclPair::CountEnded() {
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
    --started_;
    Gate().OnEnded(1, 1);
  }
  return ended;
}

void NcclPair::WatchEnds() {
  if (!is_settling_ && waiting_.empty() && issued_.empty()) return;
  itimerspec once{};
  once.it_value.tv_nsec = kLookInterval.count();
  ::timerfd_settime(timer_.get(), 0, &once, nullptr);
}

void NcclPair::Abort() {
  if (communicator_ == nullptr) {
    has_ended_ = true;
    return;
  }
  Gate().OnEnded(waiting_.size() + started_, started_);
  abort_ = StartThread("nccl abort", [this](const std::stop_token& /*stop*/) {
    (void)device_.MakeCurrent();
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
