#include "cli/worker_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace baton {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(WorkerPlanTest, WithoutDevicesTheConfigurationDecides) {
  WorkerCounts counts;
  counts.prefill = 2;
  counts.decode = 1;
  const auto plans = PlanWorkers(counts);
  ASSERT_EQ(plans.size(), 3u);
  EXPECT_EQ(plans[0].name, "prefill-0");
  EXPECT_EQ(plans[1].name, "prefill-1");
  EXPECT_EQ(plans[2].name, "decode-0");
  EXPECT_EQ(plans[2].role, "decode");
  for (const WorkerPlan& plan : plans) {
    EXPECT_THAT(plan.settings, IsEmpty());
    EXPECT_FALSE(plan.after_others);
  }
}

TEST(WorkerPlanTest, DevicesAreDealtOutInTurn) {
  WorkerCounts counts;
  counts.prefill = 3;
  counts.decode = 1;
  counts.prefill_devices = {"cpu", "cuda:0"};
  counts.decode_devices = {"cuda:1"};
  const auto plans = PlanWorkers(counts);
  EXPECT_THAT(plans[0].settings, ElementsAre("engine.device=\"cpu\""));
  EXPECT_THAT(plans[1].settings, ElementsAre("engine.device=\"cuda:0\""));
  EXPECT_THAT(plans[2].settings, ElementsAre("engine.device=\"cpu\""));
  EXPECT_THAT(plans[3].settings, ElementsAre("engine.device=\"cuda:1\""));
  for (const WorkerPlan& plan : plans) EXPECT_FALSE(plan.after_others) << plan.name;
}

TEST(WorkerPlanTest, WorkersOnOneGpuShareItsMemoryOneAfterTheOther) {
  WorkerCounts counts;
  counts.prefill = 1;
  counts.decode = 2;
  counts.prefill_devices = {"cuda:0"};
  counts.decode_devices = {"cuda:0"};
  const auto plans = PlanWorkers(counts);
  EXPECT_THAT(plans[0].settings,
              ElementsAre("engine.device=\"cuda:0\"", "engine.kv_memory_fraction=0.300"));
  EXPECT_THAT(plans[1].settings,
              ElementsAre("engine.device=\"cuda:0\"", "engine.kv_memory_fraction=0.450"));
  EXPECT_THAT(plans[2].settings,
              ElementsAre("engine.device=\"cuda:0\"", "engine.kv_memory_fraction=0.900"));
  for (const WorkerPlan& plan : plans) EXPECT_TRUE(plan.after_others) << plan.name;
}

TEST(WorkerPlanTest, EachRankGetsADevice) {
  WorkerCounts counts;
  counts.prefill = 2;
  counts.decode = 1;
  counts.prefill_ranks = {.tensor_parallel = 2, .pipeline_parallel = 1};
  counts.decode_ranks = {.tensor_parallel = 1, .pipeline_parallel = 2};
  counts.prefill_devices = {"cuda:0", "cuda:1", "cuda:2", "cuda:3"};
  auto plans = PlanWorkers(counts);
  EXPECT_THAT(plans[0].settings,
              ElementsAre("engine.tensor_parallel=2", R"(engine.devices=["cuda:0","cuda:1"])"));
  EXPECT_THAT(plans[1].settings,
              ElementsAre("engine.tensor_parallel=2", R"(engine.devices=["cuda:2","cuda:3"])"));
  EXPECT_THAT(plans[2].settings, ElementsAre("engine.pipeline_parallel=2"));
  counts.decode_devices = {"cuda:2", "cuda:4"};
  plans = PlanWorkers(counts);
  // cuda:2 is shared by prefill-1 and decode-0.
  EXPECT_THAT(plans[1].settings, testing::Contains("engine.kv_memory_fraction=0.450"));
  EXPECT_THAT(plans[2].settings, testing::Contains("engine.kv_memory_fraction=0.900"));
  EXPECT_FALSE(plans[0].after_others);
  EXPECT_TRUE(plans[2].after_others);
}

TEST(WorkerPlanTest, DevicesAloneGiveAWorkerEach) {
  const WorkerCounts one = CountsForDevices({"cuda:0"});
  EXPECT_EQ(one.prefill, 0);
  EXPECT_EQ(one.decode, 1);
  EXPECT_TRUE(one.unified);
  EXPECT_THAT(PlanWorkers(one)[0].settings,
              ElementsAre("unified=true", "engine.device=\"cuda:0\""));
  const WorkerCounts three = CountsForDevices({"cuda:0", "cuda:1", "cuda:2"});
  EXPECT_THAT(three.prefill_devices, ElementsAre("cuda:0"));
  EXPECT_THAT(three.decode_devices, ElementsAre("cuda:1", "cuda:2"));
  EXPECT_FALSE(three.unified);
}

TEST(WorkerPlanTest, ValuesAreQuoted) {
  EXPECT_EQ(QuotedOverride("a.b", "x: \"y\""), R"(a.b="x: \"y\"")");
}

}  // namespace
}  // namespace baton
