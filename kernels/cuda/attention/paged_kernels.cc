#include "kernels/cuda/attention/paged_kernels.h"

#include "kernels/cuda/attention/capped_kernels.h"
#include "kernels/cuda/attention/rows_alone.h"

namespace baton::cuda {
namespace {

constexpr PagedForm kForms[] = {PagedForm::kRows, PagedForm::kChunks, PagedForm::kChunkRowsAlone};

PagedKernelSet Kernels(PagedForm form, bool fp8, bool capped) {
  if (fp8) return capped ? Flash2CappedFp8(form) : Flash2Fp8(form);
  if (capped) return Flash2Capped(form);
  return form == PagedForm::kRows ? Flash2Rows() : Flash2Chunks(form == PagedForm::kChunkRowsAlone);
}

cudaError_t Launch(PagedForm form, bool fp8, const PagedWork& work, const AttentionLaunch& call) {
  return Kernels(form, fp8, call.shape.cap > 0).launch(work, call);
}

cudaError_t PrepareAll(bool fp8, bool capped) {
  for (const PagedForm form : kForms) {
    const cudaError_t error = Kernels(form, fp8, capped).prepare();
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

}  // namespace

int32_t ChunkTile(int32_t head_dim) {
  return head_dim == 256 ? 64 : 128;
}

cudaError_t PrepareDecodeAttention() {
  return Flash2Rows().prepare();
}

cudaError_t PrepareChunkAttention() {
  const cudaError_t error = Flash2Chunks(/*rows_alone=*/false).prepare();
  return error == cudaSuccess ? Flash2Chunks(/*rows_alone=*/true).prepare() : error;
}

cudaError_t PrepareFp8Attention() {
  return PrepareAll(/*fp8=*/true, /*capped=*/false);
}

cudaError_t PrepareCappedPagedAttention() {
  const cudaError_t error = PrepareAll(/*fp8=*/false, /*capped=*/true);
  return error == cudaSuccess ? PrepareAll(/*fp8=*/true, /*capped=*/true) : error;
}

cudaError_t LaunchDecodeAttention(const PagedWork& work, const AttentionLaunch& call) {
  return Launch(PagedForm::kRows, /*fp8=*/false, work, call);
}

cudaError_t LaunchChunkAttention(const PagedWork& work, const AttentionLaunch& call) {
  return Launch(PagedForm::kChunks, /*fp8=*/false, work, call);
}

cudaError_t LaunchChunkRowsAlone(const PagedWork& work, const AttentionLaunch& call) {
  return Launch(PagedForm::kChunkRowsAlone, /*fp8=*/false, work, call);
}

cudaError_t LaunchFp8DecodeAttention(const PagedWork& work, const AttentionLaunch& call) {
  return Launch(PagedForm::kRows, /*fp8=*/true, work, call);
}

cudaError_t LaunchFp8ChunkAttention(const PagedWork& work, const AttentionLaunch& call) {
  return Launch(PagedForm::kChunks, /*fp8=*/true, work, call);
}

cudaError_t LaunchFp8ChunkRowsAlone(const PagedWork& work, const AttentionLaunch& call) {
  return Launch(PagedForm::kChunkRowsAlone, /*fp8=*/true, work, call);
}

}  // namespace baton::cuda
