#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/device/cuda_device.h"
#include "tests/gpu/test_device.h"
#include "tests/parity/parity.h"

// Runs the parity suite of the CPU backend on the GPU: with decode steps as CUDA graphs, with
// single launches, and in deterministic mode.
namespace baton {
namespace {

struct Param {
  std::string name;
  CudaOptions options;
  parity::Case check;
  bool fp8 = false;
};

void Append(const std::string& prefix,
            const CudaOptions& options,
            const std::vector<parity::Case>& cases,
            std::vector<Param>& params,
            bool fp8 = false) {
  for (const parity::Case& check : cases) {
    params.push_back({prefix + "_" + check.name, options, check, fp8});
  }
}

std::vector<Param> Params() {
  std::vector<Param> params;
  Append("graphs", {.graphs = true}, parity::ResultCases(), params);
  Append("graphs", {.graphs = true}, parity::LongCases(), params);
  Append("graphs", {.graphs = true}, parity::QuantizedKvCases(), params, true);
  Append("deterministic", {.deterministic = true}, parity::QuantizedKvCases(), params, true);
  Append("deterministic",
         {.deterministic = true},
         parity::QuantizedKvIndependenceCases(),
         params,
         true);
  Append("launches", {.graphs = false}, parity::ResultCases(), params);
  Append("deterministic", {.deterministic = true}, parity::AllCases(), params);
  Append("deterministic", {.deterministic = true}, parity::LongCases(), params);
  return params;
}

class OpsParityTest : public testing::TestWithParam<Param> {};

TEST_P(OpsParityTest, AgreesWithTheReference) {
  auto device = cuda::CudaDevice::Open(0);
  if (!device.ok() && device.status().code() == StatusCode::kNotFound) {
    GTEST_SKIP() << "the CUDA backend was NOT tested: " << device.status();
  }
  ASSERT_TRUE(device.ok()) << device.status();
  auto ops = MakeCudaOps(**device, cuda::TestedOptions(GetParam().options));
  ASSERT_TRUE(ops.ok()) << ops.status();
  if (GetParam().fp8 && !(*ops)->supports_fp8_kv()) {
    GTEST_SKIP() << "no FP8 on this GPU: a KV cache in FP8 was NOT tested";
  }
  // Without them, cases would be skipped.
  ASSERT_NE((*ops)->family_ops(), nullptr);
  ASSERT_NE((*ops)->latent_ops(), nullptr);
  ASSERT_NE((*ops)->recurrent_ops(), nullptr);
  GetParam().check.run(**ops, parity::ToleranceFor((*ops)->activation_dtype()));
}

INSTANTIATE_TEST_SUITE_P(Cuda, OpsParityTest, testing::ValuesIn(Params()), [](const auto& test) {
  return test.param.name;
});

}  // namespace
}  // namespace baton
