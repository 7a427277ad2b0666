#include <cstdio>
#include <string>
#include <string_view>

#include <benchmark/benchmark.h>

#include "bench/kernels/synthetic.h"

namespace {

constexpr std::string_view kIsaFlag = "--cpu_isa=";

// Takes --cpu_isa out of the arguments and sets the instruction set.
baton::Status TakeIsa(int& argc, char** argv) {
  int kept = 1;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (!argument.starts_with(kIsaFlag)) {
      argv[kept++] = argv[i];
      continue;
    }
    BATON_ASSIGN_OR_RETURN(baton::bench::IsaInUse(),
                           baton::ParseCpuIsa(argument.substr(kIsaFlag.size())));
  }
  argc = kept;
  return baton::OkStatus();
}

}  // namespace

// CPU kernels: GEMM, attention, sampling, and whole steps of a model with SmolLM2-135M's shape and
// random weights. `--benchmark_format=json` prints machine-readable results, `--cpu_isa=avx2` runs
// the kernels of another instruction set than the best one. The first argument of each case is the
// thread count. GB/s counts the bytes of weights or KV that are read; GFLOP/s counts two operations
// per weight.
int main(int argc, char** argv) {
  if (const baton::Status taken = TakeIsa(argc, argv); !taken.ok()) {
    std::fprintf(stderr, "kernels_bench: %s\n", taken.ToString().c_str());
    return 1;
  }
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::AddCustomContext("cpu_isa", std::string(Name(baton::bench::IsaInUse())));
  baton::bench::RegisterOps();
  baton::bench::RegisterSampling();
  baton::bench::RegisterSteps();
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
