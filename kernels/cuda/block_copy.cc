#include "kernels/cuda/block_copy.h"

#include <unordered_set>
#include <vector>

#include "kernels/cuda/block_kernels.h"
#include "kernels/cuda/cuda_status.h"

namespace baton::cuda {
namespace {

constexpr size_t kFirstRoom = 4096;
constexpr size_t kMostAtOnce = 65535;  // thread blocks in a grid's second dimension

// How many of the first `copies` can run side by side: none may write what another reads or writes.
size_t Independent(std::span<const BlockCopy> copies) {
  std::unordered_set<int32_t> read;
  std::unordered_set<int32_t> written;
  size_t count = 0;
  for (const BlockCopy& copy : copies) {
    if (written.contains(copy.from) || written.contains(copy.to) || read.contains(copy.to)) break;
    read.insert(copy.from);
    written.insert(copy.to);
    if (++count == kMostAtOnce) break;
  }
  return count;
}

}  // namespace

StatusOr<std::unique_ptr<BlockCopier>> BlockCopier::Create() {
  std::unique_ptr<BlockCopier> copier(new BlockCopier());
  BATON_ASSIGN_OR_RETURN(copier->list_, StepBuffer::Create(kFirstRoom));
  return copier;
}

Status BlockCopier::Copy(const KvView& kv, std::span<const BlockCopy> copies, cudaStream_t stream) {
  std::vector<BlockCopy> wanted;
  for (const BlockCopy& copy : copies) {
    if (copy.from < 0 || copy.from >= kv.blocks || copy.to < 0 || copy.to >= kv.blocks) {
      return InvalidArgument(
          "copy of block {} to block {}; the arena has {}", copy.from, copy.to, kv.blocks);
    }
    if (copy.from != copy.to) wanted.push_back(copy);
  }
  if (wanted.empty()) return OkStatus();
  if (kv.block_stride % 16 != 0 || reinterpret_cast<uintptr_t>(kv.base) % 16 != 0) {
    return InvalidArgument("blocks of {} bytes; the device copies multiples of 16",
                           kv.block_stride);
  }
  const std::span<const BlockCopy> all(wanted);
  const BlockCopy* list = nullptr;
  bool fits = false;
  while (!fits) {
    list_->Clear();
    list = list_->Write(all);
    BATON_ASSIGN_OR_RETURN(fits, list_->Fits());
  }
  BATON_CUDA_RETURN_IF_ERROR(list_->Upload(stream));
  for (size_t done = 0; done < all.size();) {
    const size_t count = Independent(all.subspan(done));
    BATON_CUDA_RETURN_IF_ERROR(LaunchBlockCopies(kv.base,
                                                 kv.block_stride,
                                                 kv.block_stride,
                                                 list + done,
                                                 static_cast<int32_t>(count),
                                                 stream));
    done += count;
  }
  return ToStatus(cudaStreamSynchronize(stream), "copying blocks");
}

}  // namespace baton::cuda
