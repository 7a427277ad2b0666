#include "kernels/cuda/exchange/peer_puts.h"

#include "kernels/cuda/device/cuda_status.h"
#include "kernels/cuda/device/stream.h"

namespace baton::cuda {
namespace {

cudaError_t CopyAll(std::span<const ByteCopy> copies, cudaStream_t stream) {
  cudaError_t error = cudaSuccess;
  for (const ByteCopy& copy : copies) {
    if (error != cudaSuccess) break;
    error = cudaMemcpyAsync(copy.to, copy.from, copy.bytes, cudaMemcpyDefault, stream);
  }
  return error;
}

}  // namespace

StatusOr<std::unique_ptr<PeerPuts>> PeerPuts::Create() {
  std::unique_ptr<PeerPuts> puts(new PeerPuts());
  BATON_RETURN_IF_ERROR(puts->Open());
  return puts;
}

Status PeerPuts::Open() {
  BATON_RETURN_IF_ERROR(CreateStream(StreamPriority::kGreatest, &stream_));
  for (auto* const events : {&begins_, &ends_}) {
    for (cudaEvent_t& event : *events) {
      BATON_CUDA_RETURN_IF_ERROR(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    }
  }
  return OkStatus();
}

PeerPuts::~PeerPuts() {
  for (const auto* const events : {&begins_, &ends_}) {
    for (const cudaEvent_t event : *events) {
      if (event != nullptr) cudaEventDestroy(event);
    }
  }
  if (stream_ != nullptr) cudaStreamDestroy(stream_);
}

cudaError_t PeerPuts::Copy(std::span<const ByteCopy> copies,
                           int put_buffer,
                           cudaStream_t step,
                           const std::function<cudaError_t(cudaStream_t)>& exchange_flags) {
  const auto index = static_cast<size_t>(put_buffer);
  cudaError_t error = cudaEventRecord(begins_[index], step);
  if (error == cudaSuccess) error = cudaStreamWaitEvent(stream_, begins_[index]);
  if (error == cudaSuccess) error = CopyAll(copies, stream_);
  if (error == cudaSuccess) error = exchange_flags(stream_);
  return error == cudaSuccess ? cudaEventRecord(ends_[index], stream_) : error;
}

cudaError_t PeerPuts::Await(int put_buffer,
                            std::span<const ByteCopy> copies,
                            cudaStream_t step) const {
  const cudaError_t error = cudaStreamWaitEvent(step, ends_[static_cast<size_t>(put_buffer)]);
  return error == cudaSuccess ? CopyAll(copies, step) : error;
}

}  // namespace baton::cuda
