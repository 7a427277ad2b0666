#include "kernels/cuda/device/growing_memory.h"

#include <cuda_runtime_api.h>

#include "kernels/cuda/device/cuda_status.h"
#include "kernels/cuda/device/driver_function.h"

namespace baton::cuda {
namespace {

constexpr unsigned kCudaVersion = 10020;

struct Driver {
  using Granularity = CUresult (*)(size_t*,
                                   const CUmemAllocationProp*,
                                   CUmemAllocationGranularity_flags);
  using Reserve = CUresult (*)(CUdeviceptr*, size_t, size_t, CUdeviceptr, unsigned long long);
  using Free = CUresult (*)(CUdeviceptr, size_t);
  using Create = CUresult (*)(CUmemGenericAllocationHandle*,
                              size_t,
                              const CUmemAllocationProp*,
                              unsigned long long);
  using Release = CUresult (*)(CUmemGenericAllocationHandle);
  using Map =
      CUresult (*)(CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle, unsigned long long);
  using Unmap = CUresult (*)(CUdeviceptr, size_t);
  using SetAccess = CUresult (*)(CUdeviceptr, size_t, const CUmemAccessDesc*, size_t);

  Granularity granularity =
      FindDriverFunction<Granularity>("cuMemGetAllocationGranularity", kCudaVersion);
  Reserve reserve = FindDriverFunction<Reserve>("cuMemAddressReserve", kCudaVersion);
  Free free = FindDriverFunction<Free>("cuMemAddressFree", kCudaVersion);
  Create create = FindDriverFunction<Create>("cuMemCreate", kCudaVersion);
  Release release = FindDriverFunction<Release>("cuMemRelease", kCudaVersion);
  Map map = FindDriverFunction<Map>("cuMemMap", kCudaVersion);
  Unmap unmap = FindDriverFunction<Unmap>("cuMemUnmap", kCudaVersion);
  SetAccess set_access = FindDriverFunction<SetAccess>("cuMemSetAccess", kCudaVersion);

  bool complete() const {
    return granularity != nullptr && reserve != nullptr && free != nullptr && create != nullptr &&
           release != nullptr && map != nullptr && unmap != nullptr && set_access != nullptr;
  }
};

const Driver& TheDriver() {
  static const Driver driver;
  return driver;
}

CUmemAllocationProp PropertiesOn(CUdevice device) {
  CUmemAllocationProp properties = {};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, device};
  return properties;
}

size_t RoundedUp(size_t bytes, size_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

}  // namespace

StatusOr<std::unique_ptr<GrowingMemory>> GrowingMemory::Create() {
  std::unique_ptr<GrowingMemory> memory(new GrowingMemory());
  BATON_CUDA_RETURN_IF_ERROR(cudaGetDevice(&memory->device_));
  const Driver& driver = TheDriver();
  const CUmemAllocationProp properties = PropertiesOn(memory->device_);
  size_t free_bytes = 0;
  size_t total = 0;
  BATON_CUDA_RETURN_IF_ERROR(cudaMemGetInfo(&free_bytes, &total));
  if (!driver.complete() ||
      driver.granularity(&memory->piece_, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM) !=
          CUDA_SUCCESS ||
      driver.reserve(&memory->address_, RoundedUp(total, memory->piece_), memory->piece_, 0, 0) !=
          CUDA_SUCCESS) {
    memory->address_ = 0;
    return MakeStatus(StatusCode::kFailedPrecondition,
                      "the NVIDIA driver cannot map device memory (cuMemAddressReserve)");
  }
  memory->reserved_ = RoundedUp(total, memory->piece_);
  return memory;
}

GrowingMemory::~GrowingMemory() {
  if (address_ == 0) return;
  const Driver& driver = TheDriver();
  if (size_ > 0) driver.unmap(address_, size_);
  for (const CUmemGenericAllocationHandle handle : handles_) driver.release(handle);
  driver.free(address_, reserved_);
}

Status GrowingMemory::Grow(size_t bytes) {
  if (bytes <= size_) return OkStatus();
  const Driver& driver = TheDriver();
  const size_t more = RoundedUp(bytes, piece_) - size_;
  const CUmemAllocationProp properties = PropertiesOn(device_);
  CUmemGenericAllocationHandle handle = 0;
  if (size_ + more > reserved_ || driver.create(&handle, more, &properties, 0) != CUDA_SUCCESS) {
    return MakeStatus(StatusCode::kResourceExhausted,
                      "{} bytes of device memory are needed beside {} bytes of the same kind, and "
                      "are not free",
                      more,
                      size_);
  }
  const CUmemAccessDesc access = {properties.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  if (driver.map(address_ + size_, more, 0, handle, 0) != CUDA_SUCCESS) {
    driver.release(handle);
    return MakeStatus(StatusCode::kInternal, "{} bytes of device memory cannot be mapped", more);
  }
  if (driver.set_access(address_ + size_, more, &access, 1) != CUDA_SUCCESS) {
    driver.unmap(address_ + size_, more);
    driver.release(handle);
    return MakeStatus(StatusCode::kInternal, "{} bytes of device memory cannot be used", more);
  }
  std::byte* const added = data() + size_;
  handles_.push_back(handle);
  size_ += more;
  BATON_CUDA_RETURN_IF_ERROR(cudaMemset(added, 0, more));
  // The fill runs on the default stream, for which other streams do not wait.
  return ToStatus(cudaStreamSynchronize(nullptr), "new device memory");
}

}  // namespace baton::cuda
