#include <array>
#include <memory>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/cpu/cpu_backend.h"
#include "tests/fakes/thread_collective.h"
#include "tests/parity/parity.h"

namespace baton {
namespace {

struct Param {
  int tensor;
  int pipeline;
  parity::Case check;
};

std::vector<Param> Params() {
  std::vector<Param> params;
  for (const auto& [tensor, pipeline] : {std::array{2, 1}, std::array{3, 2}, std::array{1, 3}}) {
    for (const parity::Case& check : parity::ExchangeCases()) {
      params.push_back({tensor, pipeline, check});
    }
  }
  return params;
}

class CpuExchangeTest : public testing::TestWithParam<Param> {};

TEST_P(CpuExchangeTest, AgreesWithTheReference) {
  const Param& param = GetParam();
  const int tensor = param.tensor;
  const int pipeline = param.pipeline;
  std::vector<std::unique_ptr<ThreadGroup>> stages;
  std::vector<std::unique_ptr<ThreadGroup>> pipelines;
  for (int i = 0; i < pipeline; ++i) stages.push_back(std::make_unique<ThreadGroup>(tensor));
  for (int i = 0; i < tensor; ++i) pipelines.push_back(std::make_unique<ThreadGroup>(pipeline));
  CpuDevice device;
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < tensor * pipeline; ++rank) {
    threads.emplace_back([&, rank] {
      const int stage = rank / tensor;
      const int tensor_rank = rank % tensor;
      const RankGroups groups{stages[static_cast<size_t>(stage)]->rank(tensor_rank),
                              pipelines[static_cast<size_t>(tensor_rank)]->rank(stage)};
      auto ops = MakeCpuOps(device, {.groups = groups});
      ASSERT_TRUE(ops.ok()) << ops.status();
      param.check.run(**ops, parity::Tolerance{});
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Cpu, CpuExchangeTest, testing::ValuesIn(Params()), [](const auto& test) {
  return fmt::format("tp{}_pp{}_{}", test.param.tensor, test.param.pipeline, test.param.check.name);
});

}  // namespace
}  // namespace baton
