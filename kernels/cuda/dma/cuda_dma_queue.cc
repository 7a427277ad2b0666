#include "kernels/cuda/dma/cuda_dma_queue.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "common/base/take_front.h"
#include "kernels/cuda/device/cuda_status.h"
#include "kernels/cuda/device/stream.h"
#include "kernels/cuda/dma/copy_runs.h"
#include "kernels/cuda/dma/imported_buffer.h"
#include "kernels/cuda/dma/row_copy_kernel.h"

namespace baton::cuda {
namespace {

// The maximum number of checksum tasks in flight. Each task keeps pinned memory for its results.
constexpr size_t kMaxTasks = 4;
// A copy is posted to the copy engines in batches of runs, so that they copy while the host posts
// the next batch. The host takes 4 us to post a batch, and 0.9 us for each run; NVLink moves a run
// of 512 KiB in 1.4 us. So the first batch is small if no copy is pending, and each later batch is
// a quarter larger.
constexpr uint64_t kFirstBatchBytes = uint64_t{4} << 20;
constexpr uint64_t kMaxBatchBytes = uint64_t{32} << 20;

// A file descriptor as the argument of a host function.
void* AsArgument(const UniqueFd& fd) {
  const auto value = static_cast<intptr_t>(fd.get());
  return reinterpret_cast<void*>(value);  // NOLINT(performance-no-int-to-ptr): nobody follows it
}

// Copy engines leave the SMs to the steps. But copies within the memory of one GPU take copy
// engines several times as long as SMs, and take the host longer to post (notes/dma.md). Such
// copies fill or empty a staging buffer of the transport nccl while NCCL transfers the previous
// buffer, so they use one thread block per SM.
Copiers CopiersFor(const Buffer& from, const Buffer& to) {
  const auto is_host = [](const Buffer& buffer) { return buffer.kind() == MemoryKind::kHost; };
  const auto is_imported = [](const Buffer& buffer) {
    return dynamic_cast<const ImportedBuffer*>(&buffer) != nullptr;
  };
  if (is_host(from) || is_host(to)) return Copiers::kEngines;
  return is_imported(from) || is_imported(to) ? Copiers::kEnginesAndSms
                                              : Copiers::kSmsOneBlockPerSm;
}

// The leading runs that together have at least `min_bytes` bytes, or all runs if they have fewer.
std::span<const CopyRun> FirstBatch(std::span<const CopyRun> runs, uint64_t min_bytes) {
  uint64_t bytes = 0;
  size_t taken = 0;
  while (taken < runs.size() && bytes < min_bytes) bytes += runs[taken++].bytes;
  return runs.first(taken);
}

void CUDART_CB Wake(void* fd) {
  const uint64_t one = 1;
  // The write fails only if the counter is full. The descriptor is readable then anyway.
  (void)!::write(static_cast<int>(reinterpret_cast<intptr_t>(fd)), &one, sizeof(one));
}

}  // namespace

StatusOr<std::unique_ptr<CudaDmaQueue>> CudaDmaQueue::Create(const CudaDevice& device) {
  std::unique_ptr<CudaDmaQueue> queue(new CudaDmaQueue(device));
  BATON_RETURN_IF_ERROR(queue->Open());
  return queue;
}

Status CudaDmaQueue::Open() {
  BATON_CUDA_RETURN_IF_ERROR(device_.MakeCurrent());
  BATON_RETURN_IF_ERROR(OpenEventFd());
  // Steps have a higher priority (CudaOps). If a kernel of a step has exactly as many thread blocks
  // as fit on the device, other kernels that occupy SMs delay it.
  for (StreamPair* pair : {&copies_, &checksums_}) {
    for (cudaStream_t* stream : {&pair->work, &pair->callbacks}) {
      BATON_RETURN_IF_ERROR(CreateStream(StreamPriority::kLeast, stream));
    }
  }
  BATON_CUDA_RETURN_IF_ERROR(LoadRowCopyKernel());
  for (size_t i = 0; i < kMaxTasks; ++i) {
    BATON_ASSIGN_OR_RETURN(auto task, ChecksumTask::Create(checksums_.work));
    free_tasks_.push_back(std::move(task));
  }
  // The driver starts its thread for host functions when the first one is launched. Do this now.
  BATON_CUDA_RETURN_IF_ERROR(SignalAfter(checksums_, free_tasks_.front()->ended()));
  return ToStatus(cudaStreamSynchronize(checksums_.callbacks), "starting a copy queue");
}

Status CudaDmaQueue::OpenEventFd() {
  event_fd_.Reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (event_fd_.valid()) return OkStatus();
  return MakeStatus(StatusCode::kResourceExhausted, "eventfd: {}", std::strerror(errno));
}

Status CudaDmaQueue::Reset() {
  BATON_CUDA_RETURN_IF_ERROR(device_.MakeCurrent());
  queued_checksums_.clear();
  // Also waits for the host functions, which write to the old descriptor.
  for (const StreamPair* pair : {&copies_, &checksums_}) {
    BATON_CUDA_RETURN_IF_ERROR(cudaStreamSynchronize(pair->work));
    BATON_CUDA_RETURN_IF_ERROR(cudaStreamSynchronize(pair->callbacks));
  }
  PollCopies();
  PollChecksums();
  done_.clear();
  return OpenEventFd();
}

CudaDmaQueue::~CudaDmaQueue() {
  if (device_.MakeCurrent() != cudaSuccess) return;
  const cudaStream_t streams[] = {
      copies_.work, checksums_.work, copies_.callbacks, checksums_.callbacks};
  for (const cudaStream_t stream : streams) {
    if (stream != nullptr) cudaStreamSynchronize(stream);
  }
  for (const PendingCopy& copy : pending_copies_) cudaEventDestroy(copy.ended);
  for (const cudaEvent_t event : free_events_) cudaEventDestroy(event);
  running_tasks_.clear();
  free_tasks_.clear();
  for (const cudaStream_t stream : streams) {
    if (stream != nullptr) cudaStreamDestroy(stream);
  }
}

void CudaDmaQueue::Signal() const {
  Wake(AsArgument(event_fd_));
}

StatusOr<cudaEvent_t> CudaDmaQueue::TakeEvent() {
  cudaEvent_t event = nullptr;
  if (free_events_.empty()) {
    BATON_CUDA_RETURN_IF_ERROR(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    return event;
  }
  event = free_events_.back();
  free_events_.pop_back();
  return event;
}

cudaError_t CudaDmaQueue::SignalAfter(const StreamPair& pair, cudaEvent_t ended) {
  const cudaError_t error = cudaStreamWaitEvent(pair.callbacks, ended, 0);
  return error != cudaSuccess ? error
                              : cudaLaunchHostFunc(pair.callbacks, Wake, AsArgument(event_fd_));
}

void CudaDmaQueue::WatchEnds() {
  if (!done_.empty()) return Signal();
  if (pending_copies_.empty() && running_tasks_.empty() && queued_checksums_.empty()) return;
  // If the device cannot be made current, Poll cannot start work either.
  if (device_.MakeCurrent() != cudaSuccess) return;
  if (!queued_checksums_.empty() && !free_tasks_.empty()) return Signal();
  const auto watch = [this](const StreamPair& pair, cudaEvent_t ended, bool& is_watched) {
    // If a host function cannot be launched, the device has failed. Signal makes the caller call
    // Poll, which reports the error.
    if (!is_watched && SignalAfter(pair, ended) != cudaSuccess) return Signal();
    is_watched = true;
  };
  if (!pending_copies_.empty())
    watch(copies_, pending_copies_.front().ended, pending_copies_.front().is_watched);
  if (!running_tasks_.empty())
    watch(checksums_, running_tasks_.front().task->ended(), running_tasks_.front().is_watched);
}

Status CudaDmaQueue::Copy(uint64_t id,
                          const Buffer& from,
                          const Buffer& to,
                          std::span<const CopyRun> runs) {
  BATON_CUDA_RETURN_IF_ERROR(device_.MakeCurrent());
  BATON_ASSIGN_OR_RETURN(const cudaEvent_t event, TakeEvent());
  cudaError_t error = cudaSuccess;
  const Copiers copiers = CopiersFor(from, to);
  if (pending_copies_.empty()) batch_bytes_ = kFirstBatchBytes;
  for (auto left = runs; !left.empty() && error == cudaSuccess;) {
    // Copies by SMs need no batches, because CopyRuns divides them into launches.
    const auto batch =
        copiers == Copiers::kSmsOneBlockPerSm ? left : FirstBatch(left, batch_bytes_);
    error = CopyRuns(from.data(), to.data(), batch, copiers, copies_.work);
    left = left.subspan(batch.size());
    batch_bytes_ = std::min(batch_bytes_ + batch_bytes_ / 4, kMaxBatchBytes);
  }
  if (error == cudaSuccess) error = cudaEventRecord(event, copies_.work);
  if (error != cudaSuccess) {
    // Some runs may have been posted. They must have finished before the caller gets the error.
    cudaStreamSynchronize(copies_.work);
    free_events_.push_back(event);
    return ToStatus(error, "copying KV blocks");
  }
  pending_copies_.push_back({id, event, false});
  return OkStatus();
}

Status CudaDmaQueue::Checksum(uint64_t id,
                              const Buffer& of,
                              std::span<const ByteRange> ranges,
                              uint64_t granule) {
  if (ranges.empty()) {
    done_.push_back({id, OkStatus(), {}});
    return OkStatus();
  }
  uint64_t bytes = 0;
  for (const ByteRange& range : ranges) bytes += range.bytes;
  queued_checksums_.push_back({id, &of, {ranges.begin(), ranges.end()}, granule, bytes});
  return OkStatus();
}

Status CudaDmaQueue::StartQueuedChecksums() {
  while (!queued_checksums_.empty() && !free_tasks_.empty()) {
    std::vector<ChecksumTask::Request> requests;
    uint64_t bytes = 0;
    do {
      bytes += queued_checksums_.front().bytes;
      requests.push_back(std::move(queued_checksums_.front()));
      queued_checksums_.pop_front();
    } while (!queued_checksums_.empty() && queued_checksums_.front().buffer == requests[0].buffer &&
             queued_checksums_.front().granule == requests[0].granule &&
             bytes + queued_checksums_.front().bytes <= ChecksumTask::kBatchBytes &&
             (bytes + queued_checksums_.front().bytes) / requests[0].granule <=
                 ChecksumTask::kBatchGranules);
    std::unique_ptr<ChecksumTask> task = std::move(free_tasks_.back());
    free_tasks_.pop_back();
    Status started = task->Start(requests);
    if (started.ok()) {
      running_tasks_.push_back({std::move(task), false});
      continue;
    }
    free_tasks_.push_back(std::move(task));
    for (const auto& request : requests) done_.push_back({request.id, started, {}});
    return started;
  }
  return OkStatus();
}

void CudaDmaQueue::PollCopies() {
  while (!pending_copies_.empty()) {
    const PendingCopy copy = pending_copies_.front();
    const cudaError_t state = cudaEventQuery(copy.ended);
    if (state == cudaErrorNotReady) return;
    pending_copies_.pop_front();
    free_events_.push_back(copy.ended);
    done_.push_back({copy.id, ToStatus(state, "copying KV blocks"), {}});
  }
}

void CudaDmaQueue::PollChecksums() {
  while (!running_tasks_.empty()) {
    const cudaError_t state = running_tasks_.front().task->Query();
    if (state == cudaErrorNotReady) return;
    std::unique_ptr<ChecksumTask> task = std::move(running_tasks_.front().task);
    running_tasks_.pop_front();
    const Status status = ToStatus(state, "checksums of KV blocks");
    for (DmaDone& done : status.ok() ? task->Take() : task->Fail(status)) {
      done_.push_back(std::move(done));
    }
    free_tasks_.push_back(std::move(task));
  }
}

size_t CudaDmaQueue::Poll(std::span<DmaDone> done) {
  uint64_t count = 0;
  (void)!::read(event_fd_.get(), &count, sizeof(count));
  if (pending_copies_.empty() && running_tasks_.empty() && queued_checksums_.empty() &&
      done_.empty())
    return 0;
  if (device_.MakeCurrent() == cudaSuccess) {
    PollCopies();
    PollChecksums();
    if (const Status started = StartQueuedChecksums(); !started.ok()) {
      for (const auto& request : queued_checksums_) done_.push_back({request.id, started, {}});
      queued_checksums_.clear();
    }
  }
  return TakeFront(done_, done);
}

}  // namespace baton::cuda
