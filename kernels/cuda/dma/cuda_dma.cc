#include "kernels/cuda/dma/cuda_dma.h"

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstring>
#include <utility>
#include <vector>

#include "common/base/local_socket.h"
#include "kernels/cuda/device/cuda_status.h"
#include "kernels/cuda/device/driver_function.h"
#include "kernels/cuda/device/process_id.h"
#include "kernels/cuda/dma/copy_runs.h"
#include "kernels/cuda/dma/imported_buffer.h"

namespace baton::cuda {
namespace {

constexpr uint32_t kExportMagic = 0x32495642;  // "BVI2"
constexpr size_t kWarmUpBytes = size_t{2} << 20;

// The content of the string that Export returns, in the memory layout of the host. The exporting
// and the importing process are on one host.
struct Exported {
  uint32_t magic = kExportMagic;
  uint32_t reserved = 0;
  uint64_t process = 0;  // ProcessId() of the exporting process
  uint64_t address = 0;  // in that process
  uint64_t bytes = 0;
  char handle[sizeof(cudaIpcMemHandle_t)] = {};
};
static_assert(sizeof(Exported) == 96);

using GetMemoryHandle =
    CUresult (*)(void*, CUdeviceptr, size_t, CUmemRangeHandleType, unsigned long long);

// Null if the driver is older than CUDA 11.7.
GetMemoryHandle FindGetMemoryHandle() {
  return FindDriverFunction<GetMemoryHandle>("cuMemGetHandleForAddressRange", 11070);
}

class PinnedBuffer final : public Buffer {
 public:
  PinnedBuffer(void* data, size_t size) : data_(data), size_(size) {}
  ~PinnedBuffer() override { cudaFreeHost(data_); }
  PinnedBuffer(const PinnedBuffer&) = delete;
  PinnedBuffer& operator=(const PinnedBuffer&) = delete;

  MemoryKind kind() const override { return MemoryKind::kHost; }
  std::byte* data() const override { return static_cast<std::byte*>(data_); }
  size_t size() const override { return size_; }
  int shared_fd() const override { return -1; }

 private:
  void* const data_;
  const size_t size_;
};

void* AddressOf(const Exported& exported) {
  return reinterpret_cast<void*>(exported.address);  // NOLINT(performance-no-int-to-ptr): it is one
}

StatusOr<Exported> Parse(std::string_view text) {
  Exported exported;
  if (text.size() != sizeof(exported)) {
    return InvalidArgument(
        "a handle of exported GPU memory has {} bytes, not {}", sizeof(exported), text.size());
  }
  std::memcpy(&exported, text.data(), sizeof(exported));
  if (exported.magic != kExportMagic || exported.bytes == 0) {
    return InvalidArgument("exported GPU memory of another version ({:#010x}, {} bytes)",
                           exported.magic,
                           exported.bytes);
  }
  return exported;
}

// Makes memory that this process exported accessible to `device`. CUDA cannot open an IPC handle in
// the process that created it. In this process the address itself is valid once peer access is
// enabled.
Status EnablePeerAccess(const CudaDevice& device, const Exported& exported) {
  cudaPointerAttributes attributes{};
  BATON_CUDA_RETURN_IF_ERROR(cudaPointerGetAttributes(&attributes, AddressOf(exported)));
  if (attributes.type != cudaMemoryTypeDevice) {
    return InvalidArgument("the exported GPU memory of this process has been freed");
  }
  if (attributes.device == device.index()) return OkStatus();
  const cudaError_t error = cudaDeviceEnablePeerAccess(attributes.device, 0);
  if (error == cudaSuccess) return OkStatus();
  cudaGetLastError();  // clears the error
  if (error == cudaErrorPeerAccessAlreadyEnabled) return OkStatus();
  return MakeStatus(StatusCode::kUnavailable,
                    "{} cannot access the memory of cuda:{}: {}",
                    device.name(),
                    attributes.device,
                    cudaGetErrorString(error));
}

}  // namespace

StatusOr<std::unique_ptr<CudaDma>> CudaDma::Create(CudaDevice& device) {
  std::unique_ptr<CudaDma> dma(new CudaDma(device));
  BATON_CUDA_RETURN_IF_ERROR(device.MakeCurrent());
  BATON_RETURN_IF_ERROR(dma->scratch_.Reserve(kWarmUpBytes));
  return dma;
}

StatusOr<std::string> CudaDma::Export(const Buffer& buffer) {
  // CUDA cannot export memory that this process has imported. But the owner's handle is valid in
  // every process.
  if (const auto* imported = dynamic_cast<const ImportedBuffer*>(&buffer)) {
    return imported->exported();
  }
  BATON_CUDA_RETURN_IF_ERROR(device_.MakeCurrent());
  Exported exported;
  exported.process = ProcessId();
  exported.address = reinterpret_cast<uint64_t>(buffer.data());
  exported.bytes = buffer.size();
  cudaIpcMemHandle_t handle;
  const cudaError_t error = buffer.kind() == MemoryKind::kCuda && buffer.size() > 0
                                ? cudaIpcGetMemHandle(&handle, buffer.data())
                                : cudaErrorInvalidValue;
  if (error != cudaSuccess) {
    cudaGetLastError();  // clears the error
    return InvalidArgument("{}: memory of {} bytes cannot be exported to other processes: {}",
                           device_.name(),
                           buffer.size(),
                           cudaGetErrorString(error));
  }
  std::memcpy(exported.handle, &handle, sizeof(handle));
  return std::string(reinterpret_cast<const char*>(&exported), sizeof(exported));
}

StatusOr<std::unique_ptr<Buffer>> CudaDma::Import(std::string_view text) {
  BATON_ASSIGN_OR_RETURN(const Exported exported, Parse(text));
  BATON_CUDA_RETURN_IF_ERROR(device_.MakeCurrent());
  void* data = AddressOf(exported);
  const bool is_own = exported.process == ProcessId();
  if (is_own) {
    BATON_RETURN_IF_ERROR(EnablePeerAccess(device_, exported));
  } else {
    cudaIpcMemHandle_t handle;
    std::memcpy(&handle, exported.handle, sizeof(handle));
    const cudaError_t error = cudaIpcOpenMemHandle(&data, handle, cudaIpcMemLazyEnablePeerAccess);
    if (error != cudaSuccess) {
      cudaGetLastError();  // clears the error
      return MakeStatus(StatusCode::kUnavailable,
                        "{} cannot map the peer's {} bytes of GPU memory: {} ({})",
                        device_.name(),
                        exported.bytes,
                        cudaGetErrorName(error),
                        cudaGetErrorString(error));
    }
  }
  auto imported = std::make_unique<ImportedBuffer>(device_, data, exported.bytes, !is_own, text);
  BATON_RETURN_IF_ERROR(WarmUp(*imported));
  return imported;
}

Status CudaDma::WarmUp(const Buffer& imported) {
  // Makes single copies, 2-D copies and batches of copies, for which the driver has different code
  // paths.
  constexpr uint64_t kUnit = kWarmUpBytes / 16;
  std::vector<CopyRun> runs = {{5 * kUnit, 5 * kUnit, kUnit},
                               {9 * kUnit, 11 * kUnit, kUnit},
                               {8 * kUnit, 13 * kUnit, kUnit}};
  for (uint64_t i = 0; i < 4; ++i) runs.push_back({i * kUnit, i * kUnit, kUnit / 2});
  const size_t bytes = std::min(imported.size(), kWarmUpBytes);
  cudaStream_t stream = nullptr;
  BATON_CUDA_RETURN_IF_ERROR(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  cudaError_t error =
      cudaMemcpyAsync(scratch_.at(), imported.data(), bytes, cudaMemcpyDefault, stream);
  if (error == cudaSuccess && bytes == kWarmUpBytes) {
    error = CopyRuns(imported.data(), scratch_.at(), runs, Copiers::kEngines, stream);
  }
  const cudaError_t ended = cudaStreamSynchronize(stream);
  cudaStreamDestroy(stream);
  return ToStatus(error != cudaSuccess ? error : ended, "reading a peer's memory");
}

StatusOr<std::unique_ptr<Buffer>> CudaDma::AllocateStaging(size_t bytes) {
  BATON_CUDA_RETURN_IF_ERROR(device_.MakeCurrent());
  void* data = nullptr;
  BATON_CUDA_RETURN_IF_ERROR(cudaMallocHost(&data, std::max<size_t>(bytes, 1)));
  return std::make_unique<PinnedBuffer>(data, bytes);
}

StatusOr<std::string> CudaDma::PciAddress() const {
  char address[16] = {};
  BATON_CUDA_RETURN_IF_ERROR(cudaDeviceGetPCIBusId(address, sizeof(address), device_.index()));
  std::string text(address);
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

StatusOr<DmaBuf> CudaDma::ExportDmaBuf(const Buffer& buffer) {
  BATON_CUDA_RETURN_IF_ERROR(device_.MakeCurrent());
  static const GetMemoryHandle get_handle = FindGetMemoryHandle();
  // The driver accepts only whole host pages. The memory of a kShared buffer extends
  // to the end of a host page.
  const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  const size_t size = (buffer.size() + page - 1) / page * page;
  int fd = -1;
  const CUresult result = get_handle == nullptr
                              ? CUDA_ERROR_NOT_SUPPORTED
                              : get_handle(&fd,
                                           reinterpret_cast<CUdeviceptr>(buffer.data()),
                                           size,
                                           CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD,
                                           /*flags=*/0);
  if (result == CUDA_SUCCESS) return DmaBuf{UniqueFd(fd), 0};
  return MakeStatus(
      StatusCode::kUnavailable,
      "{}: cannot export {} bytes of GPU memory as a dma-buf: the driver returned error {}",
      device_.name(),
      buffer.size(),
      static_cast<int>(result));
}

Status CudaDma::FlushPeerWrites() {
  int ordering = 0;
  BATON_CUDA_RETURN_IF_ERROR(
      cudaDeviceGetAttribute(&ordering, cudaDevAttrGPUDirectRDMAWritesOrdering, device_.index()));
  if (ordering >= cudaGPUDirectRDMAWritesOrderingOwner) return OkStatus();
  int flushes = 0;
  BATON_CUDA_RETURN_IF_ERROR(cudaDeviceGetAttribute(
      &flushes, cudaDevAttrGPUDirectRDMAFlushWritesOptions, device_.index()));
  if ((flushes & cudaFlushGPUDirectRDMAWritesOptionHost) == 0) {
    return MakeStatus(StatusCode::kFailedPrecondition,
                      "{} neither orders the writes of RDMA devices nor can flush them",
                      device_.name());
  }
  BATON_CUDA_RETURN_IF_ERROR(device_.MakeCurrent());
  BATON_CUDA_RETURN_IF_ERROR(cudaDeviceFlushGPUDirectRDMAWrites(
      cudaFlushGPUDirectRDMAWritesTargetCurrentDevice, cudaFlushGPUDirectRDMAWritesToOwner));
  return OkStatus();
}

StatusOr<PairExchange*> CudaDma::Pairs() {
  const std::lock_guard lock(pairs_mutex_);
  if (pairs_ == nullptr) {
    BATON_ASSIGN_OR_RETURN(const NcclLibrary* nccl, NcclLibrary::Load());
    BATON_ASSIGN_OR_RETURN(const std::string host, HostBootId());
    BATON_ASSIGN_OR_RETURN(const std::string address, PciAddress());
    pairs_ = std::make_unique<NcclPairs>(*nccl, device_, host + "/" + address);
  }
  return pairs_.get();
}

}  // namespace baton::cuda
