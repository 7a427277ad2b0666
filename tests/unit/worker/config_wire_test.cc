#include "common/worker/config_wire.h"

#include <array>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/config/config.h"
#include "common/config/home.h"

namespace baton {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

config::WorkerConfig Configured(std::vector<std::string> overrides) {
  overrides.push_back("model.path=m");
  config::WorkerConfig config;
  const Status loaded = LoadConfig({{}, overrides}, config);
  EXPECT_TRUE(loaded.ok()) << loaded;
  return config;
}

TEST(ConfigWireTest, DefaultsOfACpu) {
  const config::WorkerConfig config = Configured({});
  for (const WorkerKind kind : {WorkerKind::kPrefill, WorkerKind::kDecode, WorkerKind::kUnified}) {
    const EngineOptions engine = EngineOptionsOf(config, kind);
    EXPECT_EQ(engine.max_step_tokens, 512);
    const KvOptions kv = KvOptionsOf(config);
    EXPECT_EQ(kv.memory_bytes, size_t{512} << 20);
    EXPECT_EQ(kv.dtype, DType::kF16);
    EXPECT_EQ(ModelOptionsOf(config, kind).backend.device, "cpu");
  }
}

TEST(ConfigWireTest, DefaultsOfAGpuDependOnTheRole) {
  const config::WorkerConfig config = Configured({"engine.device=cuda:1"});
  for (const auto& [kind, tokens] : {std::pair(WorkerKind::kPrefill, 8192),
                                     std::pair(WorkerKind::kDecode, 2048),
                                     std::pair(WorkerKind::kUnified, 2048)}) {
    const EngineOptions engine = EngineOptionsOf(config, kind);
    EXPECT_EQ(engine.max_step_tokens, tokens) << Name(kind);
    EXPECT_EQ(engine.full_step_tokens < tokens, kind == WorkerKind::kPrefill);
    const KvOptions kv = KvOptionsOf(config);
    EXPECT_EQ(kv.blocks, 0);
    EXPECT_EQ(kv.memory_bytes, 0u);
    EXPECT_EQ(kv.memory_fraction, 0.9);
    EXPECT_EQ(kv.dtype, DType::kBF16);
    EXPECT_EQ(ModelOptionsOf(config, kind).max_step_tokens, tokens) << Name(kind);
  }
  const BackendOptions backend = ModelOptionsOf(config, WorkerKind::kDecode).backend;
  EXPECT_EQ(backend.device, "cuda:1");
  EXPECT_EQ(backend.kernel_cache, HomeFolder() + "/kernels");
  EXPECT_FALSE(backend.portable_kernels);
}

TEST(ConfigWireTest, AGroupOfGpusHasTheDefaultsOfAGpu) {
  const config::WorkerConfig config = Configured({"engine.tensor_parallel=2",
                                                  "engine.devices=[\"cuda:0\",\"cuda:1\"]",
                                                  "engine.deterministic=true"});
  const EngineOptions engine = EngineOptionsOf(config, WorkerKind::kDecode);
  EXPECT_EQ(engine.max_step_tokens, 2048);
  EXPECT_TRUE(engine.repeat_output_singly);
  EXPECT_EQ(KvOptionsOf(config).dtype, DType::kBF16);
}

TEST(ConfigWireTest, GpusThatHandOffAreDeterministicUnlessTheyAreToldOtherwise) {
  const auto is = [](const std::vector<std::string>& overrides, WorkerKind kind) {
    const config::WorkerConfig config = Configured(overrides);
    const bool deterministic = IsDeterministic(config.engine(), kind);
    const bool gpu = !overrides.empty();
    EXPECT_EQ(ModelOptionsOf(config, kind).backend.deterministic, gpu && deterministic);
    EXPECT_EQ(EngineOptionsOf(config, kind).repeat_output_singly, gpu && deterministic);
    return deterministic;
  };
  for (const WorkerKind kind : {WorkerKind::kPrefill, WorkerKind::kDecode, WorkerKind::kUnified}) {
    SCOPED_TRACE(Name(kind));
    EXPECT_TRUE(is({}, kind));
    EXPECT_EQ(is({"engine.device=cuda:0"}, kind), kind != WorkerKind::kUnified);
    EXPECT_EQ(is({"engine.tensor_parallel=2", "engine.devices=[\"cuda:0\",\"cuda:1\"]"}, kind),
              kind != WorkerKind::kUnified);
    EXPECT_TRUE(is({"engine.device=cuda:0", "engine.deterministic=true"}, kind));
    EXPECT_FALSE(is({"engine.device=cuda:0", "engine.deterministic=false"}, kind));
  }
}

TEST(ConfigWireTest, WhatIsSaidWins) {
  const config::WorkerConfig config = Configured({"engine.device=cuda:0",
                                                  "engine.deterministic=true",
                                                  "engine.cuda_library=/lib/x.so",
                                                  "engine.kernel_cache=/cache",
                                                  "engine.kernels=portable",
                                                  "engine.max_step_tokens=100",
                                                  "engine.kv_memory_mib=64",
                                                  "engine.kv_memory_fraction=0.25",
                                                  "engine.kv_type=f32"});
  const EngineOptions engine = EngineOptionsOf(config, WorkerKind::kPrefill);
  EXPECT_EQ(engine.max_step_tokens, 100);
  const KvOptions kv = KvOptionsOf(config);
  EXPECT_EQ(kv.memory_bytes, size_t{64} << 20);
  EXPECT_EQ(kv.memory_fraction, 0.25);
  EXPECT_EQ(kv.dtype, DType::kF32);
  const BackendOptions backend = ModelOptionsOf(config, WorkerKind::kPrefill).backend;
  EXPECT_TRUE(backend.deterministic);
  EXPECT_EQ(backend.cuda_library, "/lib/x.so");
  EXPECT_EQ(backend.kernel_cache, "/cache");
  EXPECT_TRUE(backend.portable_kernels);
  EXPECT_FALSE(backend.fp8_weights);
}

TEST(ConfigWireTest, OtherKernelsThanThereAreAreRefused) {
  config::WorkerConfig config;
  EXPECT_THAT(std::string(Message(LoadConfig({{}, {"engine.kernels=hopper"}}, config))),
              HasSubstr("engine.kernels is \"hopper\"; it must be one of auto, portable"));
}

TEST(ConfigWireTest, TheKernelCacheCanBeTurnedOff) {
  const auto config = Configured({"engine.device=cuda:0", "engine.kernel_cache=off"});
  EXPECT_EQ(ModelOptionsOf(config, WorkerKind::kDecode).backend.kernel_cache, "");
}

TEST(ConfigWireTest, OnlyDevicesThatMayHangLimitSteps) {
  const auto limit = [](const std::vector<std::string>& set) {
    return ToSeconds(StepLimitOf(Configured(set).engine()));
  };
  EXPECT_EQ(limit({}), 0);
  EXPECT_EQ(limit({"engine.device=cuda:0"}), 60);
  EXPECT_EQ(limit({"engine.device=cuda:0", "engine.step_limit_seconds=2.5"}), 2.5);
  EXPECT_EQ(limit({"engine.step_limit_seconds=7"}), 7);
}

TEST(ConfigWireTest, OnlyThePrefillWorkersStagesAreBalancedForPrompts) {
  const config::WorkerConfig config = Configured({});
  const auto balance = [&](WorkerKind kind) { return ModelOptionsOf(config, kind).balance; };
  EXPECT_EQ(balance(WorkerKind::kPrefill), StageBalance::kPrompts);
  EXPECT_EQ(balance(WorkerKind::kDecode), StageBalance::kDecodes);
  EXPECT_EQ(balance(WorkerKind::kUnified), StageBalance::kDecodes);
}

TEST(ConfigWireTest, EightBitsAreForWeightsAndKvApart) {
  const auto both = [](const char* first, const char* second) {
    const config::WorkerConfig config = Configured({"engine.device=cuda:0", first, second});
    const ModelHostOptions model = ModelOptionsOf(config, WorkerKind::kDecode);
    const DType kv_type = KvOptionsOf(config).dtype;
    EXPECT_EQ(model.fp8_kv, kv_type == DType::kFp8);
    return std::pair(model.backend.fp8_weights, kv_type);
  };
  EXPECT_EQ(both("engine.kv_type=fp8", "engine.fp8_weights=false"), std::pair(false, DType::kFp8));
  EXPECT_EQ(both("engine.kv_type=auto", "engine.fp8_weights=true"), std::pair(true, DType::kBF16));
}

TEST(ConfigWireTest, TheWeightsThatStayInBf16AreSettings) {
  const auto layers = [](const std::vector<std::string>& set) {
    const Bf16Layers bf16 = ModelOptionsOf(Configured(set), WorkerKind::kDecode).bf16;
    return std::array{bf16.first_attention_outputs, bf16.first_mlps, bf16.last_mlps};
  };
  EXPECT_THAT(layers({}), ElementsAre(2, 1, 1));
  EXPECT_THAT(layers({"engine.bf16_layers.first_attention_outputs=0",
                      "engine.bf16_layers.first_mlps=3",
                      "engine.bf16_layers.last_mlps=4"}),
              ElementsAre(0, 3, 4));
}

TEST(ConfigWireTest, TransportsFollowTheMemoryUnlessTheyAreNamed) {
  const config::TransferConfig automatic = Configured({}).transfer();
  EXPECT_THAT(TransportsOf(automatic, MemoryKind::kHost), ElementsAre("shm", "verbs", "tcp"));
  EXPECT_THAT(TransportsOf(automatic, MemoryKind::kCuda), ElementsAre("cuda_ipc", "tcp"));
  const config::TransferConfig named = Configured({"transfer.transports=[tcp]"}).transfer();
  EXPECT_THAT(TransportsOf(named, MemoryKind::kHost), ElementsAre("tcp"));
  EXPECT_THAT(TransportsOf(named, MemoryKind::kCuda), ElementsAre("tcp"));
}

}  // namespace
}  // namespace baton
