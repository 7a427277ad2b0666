#include <gtest/gtest.h>

#include "kernels/cpu/cpu_backend.h"
#include "tests/parity/parity.h"

namespace baton {
namespace {

struct Param {
  CpuIsa isa;
  int threads;
  parity::Case check;
};

std::vector<Param> Params() {
  std::vector<Param> params;
  for (const CpuIsa isa : kCpuIsas) {
    if (!Supported(isa)) continue;
    for (const parity::Case& check : parity::AllCases()) params.push_back({isa, 2, check});
  }
  return params;
}

class CpuParityTest : public testing::TestWithParam<Param> {};

TEST_P(CpuParityTest, AgreesWithTheReference) {
  CpuDevice device;
  auto ops = MakeCpuOps(device, {GetParam().threads, GetParam().isa});
  ASSERT_TRUE(ops.ok()) << ops.status();
  GetParam().check.run(**ops, parity::Tolerance{});
}

INSTANTIATE_TEST_SUITE_P(Cpu, CpuParityTest, testing::ValuesIn(Params()), [](const auto& test) {
  return std::string(Name(test.param.isa)) + "_" + test.param.check.name;
});

}  // namespace
}  // namespace baton
