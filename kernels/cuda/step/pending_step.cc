#include "kernels/cuda/step/pending_step.h"

#include <utility>

#include "kernels/cuda/device/cuda_status.h"

namespace baton::cuda {

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
  sampled = {};
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

Status PendingStep::Await() const {
  Status told;
  for (size_t i = 0; i < callbacks_.size() && told.ok(); ++i) {
    told = ToStatus(cudaEventSynchronize(marked_ ? marks_[i] : ended_), "a part of a step");
    if (told.ok()) callbacks_[i]();
  }
  Status ended = ToStatus(cudaEventSynchronize(ended_), "a step");
  // If the device is lost, that error is returned, because it is the cause of the others.
  if (ended.code() == StatusCode::kUnavailable) return ended;
  BATON_RETURN_IF_ERROR(told);
  return ended;
}

Duration PendingStep::DeviceTime() const {
  float milliseconds = 0;
  if (cudaEventElapsedTime(&milliseconds, began_, ended_) != cudaSuccess) return {};
  return FromSeconds(milliseconds / 1e3);
}

}  // namespace baton::cuda
