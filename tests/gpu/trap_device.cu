// A library that is loaded into a worker with LD_PRELOAD. On SIGUSR2 it launches a kernel that
// traps in the worker's CUDA context, after which every CUDA call of the process fails. It stands
// for a bug of a kernel or an ECC error.
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <signal.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <stop_token>
#include <string>
#include <thread>

namespace {

std::atomic<bool> asked{false};

__global__ void Trap() {
  asm("trap;");
}

// Whether the process has a primary context on the device: a rank of a group is not on the device
// that its command line names.
bool HasContext(int device) {
  using GetState = CUresult (*)(CUdevice, unsigned*, int*);
  void* entry = nullptr;
  cudaDriverEntryPointQueryResult found{};
  const cudaError_t error = cudaGetDriverEntryPointByVersion(
      "cuDevicePrimaryCtxGetState", &entry, 12000, cudaEnableDefault, &found);
  if (error != cudaSuccess || entry == nullptr) return false;
  unsigned flags = 0;
  int active = 0;
  return reinterpret_cast<GetState>(entry)(device, &flags, &active) == CUDA_SUCCESS && active != 0;
}

// The primary CUDA context belongs to the process, so the kernel traps in the context of the
// worker's backend.
void TrapWhenAsked(const std::stop_token& stop) {
  while (!asked) {
    if (stop.stop_requested()) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  int devices = 0;
  cudaGetDeviceCount(&devices);
  for (int device = 0; device < devices; ++device) {
    if (!HasContext(device)) continue;
    cudaSetDevice(device);
    Trap<<<1, 1>>>();
    const cudaError_t error = cudaDeviceSynchronize();
    std::fprintf(stderr, "a kernel trapped on cuda:%d: %s\n", device, cudaGetErrorName(error));
  }
}

// Whether this process is a worker on a GPU.
bool HasDevice() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  const std::string line((std::istreambuf_iterator<char>(file)), {});
  return line.find("engine.device=cuda:") != std::string::npos;
}

__attribute__((constructor)) void Install() {
  if (!HasDevice()) return;
  struct sigaction action {};
  action.sa_handler = [](int) { asked = true; };
  sigaction(SIGUSR2, &action, nullptr);
  static std::jthread trap(TrapWhenAsked);
}

}  // namespace
