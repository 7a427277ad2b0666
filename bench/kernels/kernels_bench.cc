#include <benchmark/benchmark.h>

#include "bench/kernels/synthetic.h"

// CPU kernels: GEMM, attention, sampling, and whole steps of a model with SmolLM2-135M's shape and
// random weights. `--benchmark_format=json` prints machine-readable results. The first argument of
// each case is the thread count. GB/s counts the bytes of weights or KV that are read; GFLOP/s
// counts two operations per weight.
int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  baton::bench::RegisterOps();
  baton::bench::RegisterSampling();
  baton::bench::RegisterSteps();
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
