#include "common/model/pooling_config.h"

#include <algorithm>
#include <filesystem>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/temporary_folder.h"

namespace baton {
namespace {

using testing::HasSubstr;

class PoolingConfigTest : public testing::Test {
 protected:
  void WriteModules(const std::string& classes) {
    std::string text;
    for (size_t at = 0; at < classes.size();) {
      const size_t end = std::min(classes.find(' ', at), classes.size());
      const std::string name = classes.substr(at, end - at);
      text +=
          (text.empty() ? "[" : ",") +
          (R"({"idx":0,"name":"x","path":")" + std::string(name == "Pooling" ? "1_Pooling" : "") +
           R"(","type":"sentence_transformers.models.)" + name + "\"}");
      at = end + 1;
    }
    folder_.Write("modules.json", text + "]");
  }
  void WritePooling(const std::string& text) {
    std::filesystem::create_directories(folder_.path() + "/1_Pooling");
    folder_.Write("1_Pooling/config.json", text);
  }
  PoolingConfig Load() {
    const auto config = LoadPoolingConfig(folder_.path());
    EXPECT_TRUE(config.ok()) << config.status();
    return config.ok() ? *config : PoolingConfig();
  }
  std::string Error() { return std::string(LoadPoolingConfig(folder_.path()).status().message()); }

  TemporaryFolder folder_;
};

TEST_F(PoolingConfigTest, FilesOfSentenceTransformersAreRead) {
  WriteModules("Transformer Pooling Normalize");
  WritePooling(R"({"pooling_mode_mean_tokens": false, "pooling_mode_lasttoken": true})");
  EXPECT_EQ(Load().pooling, Pooling::kLast);
  EXPECT_TRUE(Load().normalize);
  WriteModules("Transformer Pooling");
  WritePooling(R"({"pooling_mode_mean_tokens": true, "pooling_mode_lasttoken": false})");
  EXPECT_EQ(Load().pooling, Pooling::kMean);
  EXPECT_FALSE(Load().normalize);
  WritePooling(R"({"embedding_dimension": 8, "pooling_mode": "cls"})");
  EXPECT_EQ(Load().pooling, Pooling::kFirst);
}

TEST_F(PoolingConfigTest, AModelWithoutThemHasNone) {
  EXPECT_EQ(Load().pooling, Pooling::kNone);
  EXPECT_THAT(Load().why_not, HasSubstr("no modules.json"));
  WriteModules("Transformer");
  EXPECT_EQ(Load().pooling, Pooling::kNone);
  EXPECT_THAT(Load().why_not, HasSubstr("no module Pooling"));
}

TEST_F(PoolingConfigTest, OtherModulesAndPoolingsAreNotSupported) {
  WriteModules("Transformer Pooling Dense");
  WritePooling(R"({"pooling_mode_mean_tokens": true})");
  EXPECT_EQ(Load().pooling, Pooling::kNone);
  EXPECT_THAT(Load().why_not, HasSubstr("module Dense"));
  WriteModules("Transformer Pooling");
  WritePooling(R"({"pooling_mode_max_tokens": true})");
  EXPECT_THAT(Load().why_not, HasSubstr("max_tokens"));
  WritePooling(R"({"pooling_mode_max_tokens": true, "pooling_mode_mean_tokens": true})");
  EXPECT_THAT(Load().why_not, HasSubstr("several"));
}

TEST_F(PoolingConfigTest, BrokenFilesAreNamed) {
  WriteModules("Transformer Pooling");
  EXPECT_THAT(Error(), HasSubstr("1_Pooling/config.json"));
  WritePooling("{}");
  EXPECT_THAT(Error(), HasSubstr("no pooling_mode is chosen"));
  WritePooling("[");
  EXPECT_THAT(Error(), HasSubstr("1_Pooling/config.json"));
  folder_.Write("modules.json", R"([{"type": 3}])");
  EXPECT_THAT(Error(), HasSubstr("type"));
  folder_.Write("modules.json", "{}");
  EXPECT_THAT(Error(), HasSubstr("not a JSON array"));
}

}  // namespace
}  // namespace baton
