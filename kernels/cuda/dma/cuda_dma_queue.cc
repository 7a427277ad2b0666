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

// Checksum tasks that may run at one time. Each keeps pinned memory for its results.
constexpr size_t kTasks = 4;
// Copy engines get a copy in batches of runs, so that they work while the host posts the next
// batch. A batch takes the host 4 us and 0.9 us for each run; a run of 512 KiB takes NVLink 1.4 us.
// So the first batch is small when no copy is pending, and each further one can be a quarter
// larger.
constexpr uint64_t kFirstBatchBytes = uint64_t{4} << 20;
constexpr uint64_t kMaxBatchBytes = uint64_t{32} << 20;

// A file descriptor as the argument of a host function.
void* AsArgument(const UniqueFd& fd) {
  const auto number = static_cast<intptr_t>(fd.get());
  return reinterpret_cast<void*>(number);  // NOLINT(performance-no-int-to-ptr): nobody follows it
}

// Copy engines leave the SMs to the steps. But within a GPU's memory they are several times as slow
// as SMs, and posting such copies takes the host longer (notes/dma.md). Such a copy fills or
// empties a buffer of NCCL's while the buffer before it is under way.
Copiers CopiersOf(const Buffer& from, const Buffer& to) {
  const auto is_host = [](const Buffer& buffer) { return buffer.kind() == MemoryKind::kHost; };
  const auto is_peers = [](const Buffer& buffer) {
    return dynamic_cast<const ImportedBuffer*>(&buffer) != nullptr;
  };
  if (is_host(from) || is_host(to)) return Copiers::kEngines;
  return is_peers(from) || is_peers(to) ? Copiers::kEnginesAndSms : Copiers::kSmsOneBlockEach;
}

// The first runs that have at least `least` bytes together; all runs when they have fewer.
std::span<const CopyRun> FirstOf(std::span<const CopyRun> runs, uint64_t least) {
  uint64_t bytes = 0;
  size_t taken = 0;
  while (taken < runs.size() && bytes < least) bytes += runs[taken++].bytes;
  return runs.first(taken);
}

void CUDART_CB Wake(void* fd) {
  const uint64_t one = 1;
  // The write can only fail when the counter is full; the reader is awake then anyway.
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
  // Steps have a higher priority (CudaOps): a kernel of a step whose thread blocks fill the device
  // exactly once would take longer if other kernels occupied some of its SMs.
  for (StreamPair* pair : {&copies_, &checksums_}) {
    for (cudaStream_t* stream : {&pair->work, &pair->notices}) {
      BATON_RETURN_IF_ERROR(CreateStream(StreamPriority::kLeast, stream));
    }
  }
  BATON_CUDA_RETURN_IF_ERROR(LoadRowCopyKernel());
  for (size_t i = 0; i < kTasks; ++i) {
    BATON_ASSIGN_OR_RETURN(auto task, ChecksumTask::Create(checksums_.work));
    free_tasks_.push_back(std::move(task));
  }
  // The first host function makes the driver start the thread that calls host functions.
  BATON_CUDA_RETURN_IF_ERROR(NotifyAfter(checksums_, free_tasks_.front()->ended()));
  return ToStatus(cudaStreamSynchronize(checksums_.notices), "starting a copy queue");
}

Status CudaDmaQueue::OpenEventFd() {
  event_fd_.Reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (event_fd_.valid()) return OkStatus();
  return MakeStatus(StatusCode::kResourceExhausted, "eventfd: {}", std::strerror(errno));
}

Status CudaDmaQueue::Reset() {
  BATON_CUDA_RETURN_IF_ERROR(device_.MakeCurrent());
  waiting_.clear();
  // The host functions, too: they write to the descriptor.
  for (const StreamPair* pair : {&copies_, &checksums_}) {
    BATON_CUDA_RETURN_IF_ERROR(cudaStreamSynchronize(pair->work));
    BATON_CUDA_RETURN_IF_ERROR(cudaStreamSynchronize(pair->notices));
  }
  PollCopies();
  PollChecksums();
  done_.clear();
  return OpenEventFd();
}

CudaDmaQueue::~CudaDmaQueue() {
  if (device_.MakeCurrent() != cudaSuccess) return;
  const cudaStream_t streams[] = {
      copies_.work, checksums_.work, copies_.notices, checksums_.notices};
  for (const cudaStream_t stream : streams) {
    if (stream != nullptr) cudaStreamSynchronize(stream);
  }
  for (const PendingCopy& copy : pending_) cudaEventDestroy(copy.ended);
  for (const cudaEvent_t event : free_events_) cudaEventDestroy(event);
  tasks_.clear();
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

cudaError_t CudaDmaQueue::NotifyAfter(const StreamPair& pair, cudaEvent_t ended) {
  const cudaError_t error = cudaStreamWaitEvent(pair.notices, ended, 0);
  return error != cudaSuccess ? error
                              : cudaLaunchHostFunc(pair.notices, Wake, AsArgument(event_fd_));
}

void CudaDmaQueue::WatchEnds() {
  if (!done_.empty()) return Signal();
  if (pending_.empty() && tasks_.empty() && waiting_.empty()) return;
  // When the device cannot be made current, Poll cannot start work either.
  if (device_.MakeCurrent() != cudaSuccess) return;
  if (!waiting_.empty() && !free_tasks_.empty()) return Signal();
  const auto watch = [this](const StreamPair& pair, cudaEvent_t ended, bool& is_watched) {
    // When no host function can be launched, the device has failed. Signal makes the caller call
    // Poll, which reports the error.
    if (!is_watched && NotifyAfter(pair, ended) != cudaSuccess) return Signal();
    is_watched = true;
  };
  if (!pending_.empty()) watch(copies_, pending_.front().ended, pending_.front().is_watched);
  if (!tasks_.empty()) watch(checksums_, tasks_.front().task->ended(), tasks_.front().is_watched);
}

Status CudaDmaQueue::Copy(uint64_t id,
                          const Buffer& from,
                          const Buffer& to,
                          std::span<const CopyRun> runs) {
  BATON_CUDA_RETURN_IF_ERROR(device_.MakeCurrent());
  BATON_ASSIGN_OR_RETURN(const cudaEvent_t event, TakeEvent());
  cudaError_t error = cudaSuccess;
  const Copiers copiers = CopiersOf(from, to);
  if (pending_.empty()) batch_bytes_ = kFirstBatchBytes;
  for (auto left = runs; !left.empty() && error == cudaSuccess;) {
    // CopyRuns divides what SMs copy into launches.
    const auto now = copiers == Copiers::kSmsOneBlockEach ? left : FirstOf(left, batch_bytes_);
    error = CopyRuns(from.data(), to.data(), now, copiers, copies_.work);
    left = left.subspan(now.size());
    batch_bytes_ = std::min(batch_bytes_ + batch_bytes_ / 4, kMaxBatchBytes);
  }
  if (error == cudaSuccess) error = cudaEventRecord(event, copies_.work);
  if (error != cudaSuccess) {
    // Some of the runs may have been posted. They must have finished when the caller gets the
    // error.
    cudaStreamSynchronize(copies_.work);
    free_events_.push_back(event);
    return ToStatus(error, "copying KV blocks");
  }
  pending_.push_back({id, event, false});
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
  waiting_.push_back({id, &of, {ranges.begin(), ranges.end()}, granule, bytes});
  return OkStatus();
}

Status CudaDmaQueue::StartWaiting() {
  while (!waiting_.empty() && !free_tasks_.empty()) {
    std::vector<ChecksumTask::Request> together;
    uint64_t bytes = 0;
    do {
      bytes += waiting_.front().bytes;
      together.push_back(std::move(waiting_.front()));
      waiting_.pop_front();
    } while (!waiting_.empty() && waiting_.front().of == together[0].of &&
             waiting_.front().granule == together[0].granule &&
             bytes + waiting_.front().bytes <= ChecksumTask::kUsualBytes &&
             (bytes + waiting_.front().bytes) / together[0].granule <=
                 ChecksumTask::kUsualGranules);
    std::unique_ptr<ChecksumTask> task = std::move(free_tasks_.back());
    free_tasks_.pop_back();
    Status started = task->Start(together);
    if (started.ok()) {
      tasks_.push_back({std::move(task), false});
      continue;
    }
    free_tasks_.push_back(std::move(task));
    for (const auto& request : together) done_.push_back({request.id, started, {}});
    return started;
  }
  return OkStatus();
}

void CudaDmaQueue::PollCopies() {
  while (!pending_.empty()) {
    const PendingCopy copy = pending_.front();
    const cudaError_t state = cudaEventQuery(copy.ended);
    if (state == cudaErrorNotReady) return;
    pending_.pop_front();
    free_events_.push_back(copy.ended);
    done_.push_back({copy.id, ToStatus(state, "copying KV blocks"), {}});
  }
}

void CudaDmaQueue::PollChecksums() {
  while (!tasks_.empty()) {
    const cudaError_t state = tasks_.front().task->Query();
    if (state == cudaErrorNotReady) return;
    std::unique_ptr<ChecksumTask> task = std::move(tasks_.front().task);
    tasks_.pop_front();
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
  if (pending_.empty() && tasks_.empty() && waiting_.empty() && done_.empty()) return 0;
  if (device_.MakeCurrent() == cudaSuccess) {
    PollCopies();
    PollChecksums();
    if (const Status started = StartWaiting(); !started.ok()) {
      for (const auto& lost : waiting_) done_.push_back({lost.id, started, {}});
      waiting_.clear();
    }
  }
  return TakeFront(done_, done);
}

}  // namespace baton::cuda
