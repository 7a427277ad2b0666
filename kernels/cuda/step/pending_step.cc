#include "kernels/cuda/step/pending_step.h"

#include <string_view>
#include <thread>
#include <utility>

#include "kernels/cuda/device/cuda_status.h"
#include "kernels/dequantize.h"

namespace baton::cuda {
namespace {

// Kernels end within this time after an abort, unless their device hangs.
constexpr Duration kAbortLimit = std::chrono::seconds(5);

Status AwaitEvent(cudaEvent_t event, std::string_view what, const ExchangeWatch* watch) {
  if (watch == nullptr) return ToStatus(cudaEventSynchronize(event), what);
  cudaError_t error = cudaEventQuery(event);
  while (error == cudaErrorNotReady) {
    if (watch->AbortedFor(kAbortLimit)) return watch->status();
    std::this_thread::yield();
    error = cudaEventQuery(event);
  }
  cudaGetLastError();  // clears cudaErrorNotReady
  if (IsFatal(error)) return ToStatus(error, what);
  // An aborted exchange ends like one that has succeeded.
  BATON_RETURN_IF_ERROR(watch->status());
  return ToStatus(error, what);
}

}  // namespace

PendingStep::~PendingStep() {
  for (const cudaEvent_t event : {began_, ended_}) {
    if (event != nullptr) cudaEventDestroy(event);
  }
  for (const cudaEvent_t mark : marks_) cudaEventDestroy(mark);
}

Status PendingStep::Create() {
  BATON_CUDA_RETURN_IF_ERROR(cudaEventCreate(&began_));
  BATON_CUDA_RETURN_IF_ERROR(cudaEventCreate(&ended_));
  return OkStatus();
}

void PendingStep::Clear() {
  callbacks_.clear();
  copies_.clear();
  sampled = {};
}

Status PendingStep::PrepareCopy(const Tensor& x, std::span<const std::span<float>> to) {
  copied_type_ = x.dtype;
  copied_cols_ = static_cast<size_t>(x.cols);
  copies_.assign(to.begin(), to.end());
  return copied_.Reserve(to.size() * RowBytes(x.dtype, copied_cols_));
}

void PendingStep::TakeCopies() const {
  const size_t bytes = RowBytes(copied_type_, copied_cols_);
  for (size_t i = 0; i < copies_.size(); ++i) {
    if (copies_[i].empty()) continue;
    Dequantize(copied_type_, {copied_.data() + i * bytes, bytes}, copies_[i]);
  }
}

StatusOr<size_t> PendingStep::AddCallback(std::function<void()> notify) {
  if (callbacks_.size() == marks_.size()) {
    cudaEvent_t mark = nullptr;
    BATON_CUDA_RETURN_IF_ERROR(cudaEventCreateWithFlags(&mark, cudaEventDisableTiming));
    marks_.push_back(mark);
  }
  callbacks_.push_back(std::move(notify));
  return callbacks_.size() - 1;
}

cudaError_t PendingStep::End(cudaStream_t stream, bool marked) {
  marked_ = marked;
  return cudaEventRecord(ended_, stream);
}

Status PendingStep::Await(const ExchangeWatch* watch) const {
  Status told;
  for (size_t i = 0; i < callbacks_.size() && told.ok(); ++i) {
    told = AwaitEvent(marked_ ? marks_[i] : ended_, "a part of a step", watch);
    if (told.ok()) callbacks_[i]();
  }
  Status ended = AwaitEnd(watch);
  // If the device is lost, that error is returned, because it is the cause of the others.
  if (ended.code() == StatusCode::kUnavailable) return ended;
  BATON_RETURN_IF_ERROR(told);
  return ended;
}

Status PendingStep::AwaitEnd(const ExchangeWatch* watch) const {
  return AwaitEvent(ended_, "a step", watch);
}

bool PendingStep::ended() const {
  if (cudaEventQuery(ended_) != cudaErrorNotReady) return true;
  cudaGetLastError();  // clears it
  return false;
}

Duration PendingStep::DeviceTime() const {
  float milliseconds = 0;
  if (cudaEventElapsedTime(&milliseconds, began_, ended_) != cudaSuccess) return {};
  return FromSeconds(milliseconds / 1e3);
}

}  // namespace baton::cuda
