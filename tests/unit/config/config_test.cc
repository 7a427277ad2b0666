#include "common/config/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/temporary_folder.h"

namespace baton {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class ConfigTest : public ::testing::Test {
 protected:
  std::string WriteYaml(const std::string& text) {
    return folder_.Write(fmt::format("config_test_{}.yaml", files_++), text);
  }
  Status Load(const std::string& yaml, const std::vector<std::string>& overrides = {}) {
    const auto file = WriteYaml(yaml);
    return LoadConfig({{file}, overrides}, router_);
  }
  std::string LoadError(const std::string& yaml) {
    const Status status = Load("model: {path: m.gguf}\n" + yaml);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << status;
    return std::string(Message(status));
  }

  const TemporaryFolder folder_;
  config::RouterConfig router_;
  int files_ = 0;
};

TEST_F(ConfigTest, DefaultsAreThoseOfTheSchema) {
  SetDefaults(router_);
  EXPECT_EQ(router_.listen(), "127.0.0.1:0");
  EXPECT_EQ(router_.heartbeat_ms(), 500);
  EXPECT_EQ(router_.policy(), config::RouterConfig::COST);
  EXPECT_EQ(router_.process().log().level(), config::LogConfig::INFO);
  config::WorkerConfig worker;
  SetDefaults(worker);
  EXPECT_EQ(worker.engine().device(), "cpu");
  EXPECT_TRUE(worker.engine().prefix_cache());
}

TEST_F(ConfigTest, FilesThenOverridesWin) {
  const Status loaded = Load(
      "model: {path: m.gguf}\n"
      "max_attempts: 7\n"
      "policy: power_of_two\n"
      "process:\n"
      "  drain_seconds: 1.5\n"
      "  log: {level: debug, modules: {http: error}}\n",
      {"max_attempts=9", "process.log.modules.router=debug", "process.log.level=warning"});
  ASSERT_TRUE(loaded.ok()) << loaded;
  EXPECT_EQ(router_.max_attempts(), 9);
  EXPECT_EQ(router_.policy(), config::RouterConfig::POWER_OF_TWO);
  EXPECT_DOUBLE_EQ(router_.process().drain_seconds(), 1.5);
  EXPECT_EQ(router_.process().log().level(), config::LogConfig::WARNING);
  EXPECT_EQ(router_.process().log().modules().at("http"), "error");
  EXPECT_EQ(router_.process().log().modules().at("router"), "debug");
}

TEST_F(ConfigTest, ListsAreReplaced) {
  config::WorkerConfig worker;
  const Status loaded =
      LoadConfig({{}, {"model.path=m", "transfer.transports=[tcp]", "routers=[a:1, b:2]"}}, worker);
  ASSERT_TRUE(loaded.ok()) << loaded;
  EXPECT_THAT(worker.transfer().transports(), ElementsAre("tcp"));
  EXPECT_THAT(worker.routers(), ElementsAre("a:1", "b:2"));
}

TEST_F(ConfigTest, ErrorsNameFileLineAndPath) {
  EXPECT_THAT(
      LoadError("process:\n  http_treads: 3\n"),
      AllOf(HasSubstr(".yaml:3: process.http_treads is unknown"), HasSubstr("http_threads")));
  EXPECT_THAT(LoadError("\nmax_attempts: 0\n"),
              HasSubstr(".yaml:3: max_attempts is 0; it must be in [1, 100]"));
  EXPECT_THAT(LoadError("max_attempts: many\n"),
              HasSubstr("max_attempts is \"many\"; it must be a whole number in [1, 100]"));
  EXPECT_THAT(LoadError("max_attempts: 99999999999\n"), HasSubstr("whole number in [1, 100]"));
  EXPECT_THAT(LoadError("default_timeout_seconds: nan\n"), HasSubstr("it must be in [0.001"));
  EXPECT_THAT(LoadError("policy: best\n"), HasSubstr("must be one of cost, round_robin"));
  EXPECT_THAT(LoadError("policy: COST\n"), HasSubstr("must be one of cost, round_robin"));
  EXPECT_THAT(LoadError("max_attempts: [1]\n"), HasSubstr("must be a single value"));
  EXPECT_THAT(LoadError("process: 5\n"), HasSubstr("process must be a mapping"));
  EXPECT_THAT(LoadError("max_attempts: 1\nmax_attempts: 2\n"), HasSubstr("is given twice"));
}

TEST_F(ConfigTest, TheFormerNameOfASettingIsAnErrorThatNamesTheNewOne) {
  config::WorkerConfig worker;
  const Status loaded =
      LoadConfig({{}, {"model.path=m", "transfer.max_receive_gb_per_second=1"}}, worker);
  EXPECT_THAT(std::string(Message(loaded)),
              HasSubstr("transfer.max_receive_gb_per_second was renamed to "
                        "max_receive_gigabytes_per_second"));
  EXPECT_THAT(LoadError("\"\": 1\n"), HasSubstr("is unknown; known keys here"));
}

TEST_F(ConfigTest, AddressesNeedAHostAndAPortThatExists) {
  EXPECT_TRUE(Load("model: {path: m}\nlisten: \"[::1]:65535\"\nworker_listen: host:0\n").ok());
  EXPECT_THAT(LoadError("listen: 0.0.0.0:99999\n"),
              AllOf(HasSubstr(".yaml:2: listen is not host:port"),
                    HasSubstr("port '99999'; it must be 0 to 65535")));
  for (const char* path :
       {"listen", "worker_listen", "admin_listen", "process.http_listen", "kv_listen"}) {
    for (const char* bad : {"127.0.0.1:99999", "127.0.0.1:65536", "127.0.0.1", ":80", ""}) {
      const std::string setting = fmt::format("{}=\"{}\"", path, bad);
      config::WorkerConfig worker;
      const bool of_worker = setting.starts_with("kv_listen");
      const Status status = of_worker ? LoadConfig({{}, {"model.path=m", setting}}, worker)
                                      : LoadConfig({{}, {"model.path=m", setting}}, router_);
      EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << setting;
      EXPECT_THAT(std::string(Message(status)), HasSubstr(fmt::format("{} is not", path)));
    }
  }
}

TEST_F(ConfigTest, BadYamlIsRefused) {
  EXPECT_THAT(LoadError("policy: [cost\n"), HasSubstr("not valid YAML"));
  EXPECT_THAT(LoadError("- a\n- b\n"), HasSubstr("YAML"));
  const Status list = Load("[1, 2]");
  EXPECT_THAT(std::string(Message(list)), HasSubstr("must be a mapping"));
  std::string deep = "process: ";
  for (int i = 0; i < 5000; ++i) deep += "[";
  EXPECT_FALSE(Load(deep).ok());
}

TEST_F(ConfigTest, BadOverridesAreRefused) {
  for (const char* text : {"", "=", "=1", "policy", "process.log=3", "a.b.c=1", "..=2"}) {
    const Status status = LoadConfig({{}, {"model.path=m", text}}, router_);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(Message(status)), HasSubstr("--set")) << text;
  }
}

TEST_F(ConfigTest, WhatIsRequiredMustBeThere) {
  const Status status = LoadConfig({{}, {}}, router_);
  EXPECT_EQ(Message(status), "model.path is empty; it must be given");
}

TEST_F(ConfigTest, AnAbsentFileIsNamed) {
  const Status status = LoadConfig({{"/no/such/file.yaml"}, {}}, router_);
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_THAT(std::string(Message(status)), HasSubstr("/no/such/file.yaml"));
}

TEST_F(ConfigTest, TheDumpReadsBackToTheSame) {
  ASSERT_TRUE(Load("model: {path: \"a: b # c\"}\nprocess: {log: {modules: {kv: debug}}}\n").ok());
  config::RouterConfig again;
  const auto file = WriteYaml(ToYaml(router_));
  const Status loaded = LoadConfig({{file}, {}}, again);
  ASSERT_TRUE(loaded.ok()) << loaded;
  EXPECT_EQ(again.DebugString(), router_.DebugString());
  EXPECT_THAT(ToYaml(router_), HasSubstr("max_attempts: 4  # [1, 100]"));
}

}  // namespace
}  // namespace baton
