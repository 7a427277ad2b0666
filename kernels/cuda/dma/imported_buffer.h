#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <string>
#include <string_view>

#include "kernels/cuda/device/cuda_device.h"
#include "kernels/device.h"

namespace baton::cuda {

// Memory that another CudaDma exported (CudaDma::Export), usually in another process and on another
// GPU.
class ImportedBuffer final : public Buffer {
 public:
  ImportedBuffer(
      const CudaDevice& device, void* data, size_t size, bool is_mapped, std::string_view exported)
      : device_(device), data_(data), size_(size), is_mapped_(is_mapped), exported_(exported) {}
  ~ImportedBuffer() override {
    if (is_mapped_ && device_.MakeCurrent() == cudaSuccess) cudaIpcCloseMemHandle(data_);
  }
  ImportedBuffer(const ImportedBuffer&) = delete;
  ImportedBuffer& operator=(const ImportedBuffer&) = delete;

  MemoryKind kind() const override { return MemoryKind::kCuda; }
  std::byte* data() const override { return static_cast<std::byte*>(data_); }
  size_t size() const override { return size_; }
  int shared_fd() const override { return -1; }
  // The handle that the owner exported.
  const std::string& exported() const { return exported_; }

 private:
  const CudaDevice& device_;
  void* const data_;
  const size_t size_;
  const bool is_mapped_;
  const std::string exported_;
};

}  // namespace baton::cuda
