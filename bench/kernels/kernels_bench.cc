#include <benchmark/benchmark.h>

#include "bench/kernels/synthetic.h"

// CPU kernels: products, attention, sampling, and whole steps of a model of SmolLM2-135M's shape
// with random weights. `--benchmark_format=json` for machine-readable results. Arguments are
// {threads, …}; GB/s are bytes of weights or KV read, GFLOP/s count two operations a weight.
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
