// A library that is loaded into a worker with LD_PRELOAD. On SIGUSR2 it launches a kernel that
// traps in the worker's CUDA context, after which every CUDA call of the process fails. It stands
// for a bug of a kernel or an ECC error.
#include <cuda_runtime_api.h>
#include <signal.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
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

// N of "engine.device=cuda:N" on the process's command line; −1 when the command line has none.
int DeviceOfProcess() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  const std::string line((std::istreambuf_iterator<char>(file)), {});
  const std::string wanted = "engine.device=cuda:";
  const size_t at = line.find(wanted);
  return at == std::string::npos ? -1 : std::atoi(line.c_str() + at + wanted.size());
}

// The primary CUDA context belongs to the process, so the kernel traps in the context of the
// worker's backend.
void TrapWhenAsked(const std::stop_token& stop, int device) {
  while (!asked) {
    if (stop.stop_requested()) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  cudaSetDevice(device);
  Trap<<<1, 1>>>();
  const cudaError_t error = cudaDeviceSynchronize();
  std::fprintf(stderr, "a kernel trapped on cuda:%d: %s\n", device, cudaGetErrorName(error));
}

__attribute__((constructor)) void Install() {
  const int device = DeviceOfProcess();
  if (device < 0) return;
  struct sigaction action {};
  action.sa_handler = [](int) { asked = true; };
  sigaction(SIGUSR2, &action, nullptr);
  static std::jthread trap(TrapWhenAsked, device);
}

}  // namespace
