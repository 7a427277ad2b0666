#include "common/worker/rank_config_wire.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/config/config.h"
#include "common/worker/rank_messages.h"

namespace baton {
namespace {

config::WorkerConfig Config(int tensor,
                            int pipeline,
                            const std::vector<std::string>& devices = {}) {
  config::WorkerConfig config;
  SetDefaults(config);
  config.mutable_engine()->set_tensor_parallel(tensor);
  config.mutable_engine()->set_pipeline_parallel(pipeline);
  for (const std::string& device : devices) config.mutable_engine()->add_devices(device);
  return config;
}

TEST(RankConfigTest, EveryRankNeedsADevice) {
  EXPECT_TRUE(CheckDevices(Config(1, 1)).ok());
  EXPECT_TRUE(CheckDevices(Config(3, 2)).ok());
  EXPECT_TRUE(CheckDevices(Config(2, 1, {"cuda:1", "cuda:0"})).ok());
  EXPECT_TRUE(CheckDevices(Config(2, 1, {"cpu", "cpu"})).ok());
  EXPECT_EQ(
      Message(CheckDevices(Config(2, 2, {"cuda:0", "cuda:1"}))),
      "engine.devices names 2 devices; tensor_parallel 2 times pipeline_parallel 2 is 4 ranks");
  EXPECT_EQ(Message(CheckDevices(Config(2, 1, {"cuda:0", "cuda:0"}))),
            "engine.devices names cuda:0 twice; each rank needs its own GPU");
  config::WorkerConfig one_gpu = Config(2, 1);
  one_gpu.mutable_engine()->set_device("cuda:0");
  EXPECT_EQ(Message(CheckDevices(one_gpu)),
            "engine.devices must name a GPU for each of the 2 ranks; engine.device names only one");
}

TEST(RankConfigTest, ARankHasItsDeviceAndItsShareOfTheProcessors) {
  const ModelHostOptions options =
      RankModelOptions(Config(2, 1, {"cpu", "cuda:3"}), WorkerKind::kDecode, 1, {});
  EXPECT_EQ(options.backend.device, "cuda:3");
  EXPECT_EQ(options.ranks_on_host, 2);
  EXPECT_EQ(RankModelOptions(Config(3, 1), WorkerKind::kDecode, 2, {}).backend.device, "cpu");
}

TEST(RankConfigTest, AGroupWithoutAStepLimitHasOne) {
  EXPECT_EQ(CollectiveOptionsOf(Config(2, 1)).limit, std::chrono::seconds(60));
  config::WorkerConfig limited = Config(2, 1);
  limited.mutable_engine()->set_step_limit_seconds(7);
  EXPECT_EQ(CollectiveOptionsOf(limited).limit, std::chrono::seconds(7));
}

// The block tables of all sequences in all cache groups.
TEST(RankConfigTest, AMessageHasRoomForTheTablesOfEachCacheGroup) {
  ModelTraits traits = {.context_length = 1 << 16,
                        .max_rows = 64,
                        .max_logit_rows = 64,
                        .kv = {.layers = 4, .kv_heads = 1, .head_dim = 16}};
  const config::WorkerConfig config = Config(2, 1);
  const auto tables = static_cast<size_t>(config.engine().max_sequences()) * traits.context_length /
                      static_cast<size_t>(config.engine().block_tokens()) * sizeof(int32_t);
  const size_t one_group = MaxGroupMessageBytes(config, traits);
  EXPECT_GT(one_group, tables);
  traits.kv.windows = {32, 0, 32, 0};
  EXPECT_EQ(MaxGroupMessageBytes(config, traits), one_group + tables);
}

TEST(RankConfigTest, TensorGroupsComeBeforePipelineGroups) {
  const GroupLayout layout = GroupShape{3, 2}.layout();
  EXPECT_EQ(layout.ranks, 6);
  std::vector<std::vector<int>> members;
  for (const CollectiveLayout& collective : layout.collectives) members.push_back(collective.ranks);
  const std::vector<std::vector<int>> expected = {{0, 1, 2}, {3, 4, 5}, {0, 3}, {1, 4}, {2, 5}};
  EXPECT_EQ(members, expected);
  EXPECT_TRUE((GroupShape{1, 1}.layout().collectives.empty()));
}

TEST(RankConfigTest, EachRankOpensItsTensorAndItsPipelineGroup) {
  const GroupShape shape = {3, 2};
  const auto memory = GroupMemory::Create(shape.layout()).value();
  const auto rank = RankCollectives::Create(*memory, shape, 4, {});
  ASSERT_TRUE(rank.ok()) << rank.status();
  const RankGroups groups = (*rank)->groups();
  EXPECT_EQ(groups.tensor->rank(), 1);
  EXPECT_EQ(groups.tensor->size(), 3);
  EXPECT_EQ(groups.pipeline->rank(), 1);
  EXPECT_EQ(groups.pipeline->size(), 2);
}

TEST(RankMessagesTest, AreReadAsTheyWereWritten) {
  EXPECT_EQ(RankIn(RankMessage(5)).value(), 5);
  EXPECT_EQ(BlocksIn(BlocksMessage(123)).value(), 123);
  const KvShard shard = {3, 4, 5, 6};
  for (const std::string& exported : {std::string(), std::string("a\0\xff", 3)}) {
    const std::string message = ShardMessage(shard, exported);
    EXPECT_EQ(ShardIn(message).value(), shard);
    EXPECT_EQ(ExportIn(message).value(), exported);
  }
  const Status error = InvalidArgument("bad byte \xff");
  EXPECT_EQ(ErrorIn(ErrorMessage(error)).code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(Message(ErrorIn(ErrorMessage(error)))), testing::HasSubstr("bad byte"));
}

TEST(RankMessagesTest, OtherTextIsAnErrorAndNotAReport) {
  for (const char* text : {"", "{", "[]", "{}", R"({"rank": "a"})", R"({"blocks": 1.5})"}) {
    EXPECT_FALSE(RankIn(text).ok()) << text;
    EXPECT_FALSE(BlocksIn(text).ok()) << text;
    EXPECT_FALSE(ShardIn(text).ok()) << text;
    EXPECT_TRUE(ErrorIn(text).ok()) << text;
  }
  for (const char* text :
       {"[]", "{}", R"({"memory": 1})", R"({"memory": "abc"})", R"({"memory": "0g"})"}) {
    EXPECT_FALSE(ExportIn(text).ok()) << text;
  }
}

}  // namespace
}  // namespace baton
