#include "tests/gpu/graph_timer.h"

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "common/base/quantile.h"
#include "kernels/cuda/device/cuda_status.h"

namespace baton::cuda::testing {
namespace {

constexpr int kWarmups = 3;

}  // namespace

void Check(const Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", std::string(Message(status)).c_str());
  std::exit(1);
}

void Check(cudaError_t error) {
  Check(ToStatus(error, "benchmark"));
}

double TimeStream(cudaStream_t stream, int runs, const std::function<void()>& body) {
  cudaEvent_t begin = nullptr;
  cudaEvent_t end = nullptr;
  Check(cudaEventCreate(&begin));
  Check(cudaEventCreate(&end));
  std::vector<double> times;
  for (int i = 0; i < kWarmups + runs; ++i) {
    Check(cudaEventRecord(begin, stream));
    body();
    Check(cudaEventRecord(end, stream));
    Check(cudaEventSynchronize(end));
    float milliseconds = 0;
    Check(cudaEventElapsedTime(&milliseconds, begin, end));
    if (i >= kWarmups) times.push_back(static_cast<double>(milliseconds) * 1e3);
  }
  Check(cudaEventDestroy(begin));
  Check(cudaEventDestroy(end));
  return Median(times);
}

double TimeGraph(cudaStream_t stream, int runs, const std::function<void()>& body) {
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  Check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  body();
  Check(cudaStreamEndCapture(stream, &graph));
  Check(cudaGraphInstantiate(&executable, graph, 0));
  const double time = TimeStream(stream, runs, [&] { Check(cudaGraphLaunch(executable, stream)); });
  Check(cudaGraphExecDestroy(executable));
  Check(cudaGraphDestroy(graph));
  return time;
}

}  // namespace baton::cuda::testing
