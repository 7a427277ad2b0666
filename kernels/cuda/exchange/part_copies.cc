#include "kernels/cuda/exchange/part_copies.h"

#include "kernels/cuda/device/cuda_status.h"
#include "kernels/cuda/device/stream.h"
#include "kernels/cuda/exchange/exchange_ops.h"

namespace baton::cuda {

StatusOr<std::unique_ptr<PartCopies>> PartCopies::Create() {
  std::unique_ptr<PartCopies> copies(new PartCopies());
  BATON_RETURN_IF_ERROR(copies->Open());
  return copies;
}

Status PartCopies::Open() {
  BATON_RETURN_IF_ERROR(CreateStream(StreamPriority::kGreatest, &stream_));
  for (auto* const events : {&begins_, &ends_}) {
    for (cudaEvent_t& event : *events) {
      BATON_CUDA_RETURN_IF_ERROR(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    }
  }
  return OkStatus();
}

PartCopies::~PartCopies() {
  for (const auto* const events : {&begins_, &ends_}) {
    for (const cudaEvent_t event : *events) {
      if (event != nullptr) cudaEventDestroy(event);
    }
  }
  if (stream_ != nullptr) cudaStreamDestroy(stream_);
}

cudaError_t PartCopies::Copy(const Tensor& part,
                             std::byte* to,
                             int place,
                             cudaStream_t step,
                             const std::function<cudaError_t(cudaStream_t)>& meet) {
  const auto index = static_cast<size_t>(place);
  cudaError_t error = cudaEventRecord(begins_[index], step);
  if (error == cudaSuccess) error = cudaStreamWaitEvent(stream_, begins_[index]);
  if (error == cudaSuccess) {
    error = cudaMemcpyAsync(to, part.data, PackedBytes(part), cudaMemcpyDefault, stream_);
  }
  if (error == cudaSuccess) error = meet(stream_);
  return error == cudaSuccess ? cudaEventRecord(ends_[index], stream_) : error;
}

cudaError_t PartCopies::Await(int place, cudaStream_t step) const {
  return cudaStreamWaitEvent(step, ends_[static_cast<size_t>(place)]);
}

}  // namespace baton::cuda
