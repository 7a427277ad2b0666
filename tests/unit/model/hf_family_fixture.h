#pragma once

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "common/base/mapped_file.h"
#include "common/model/hf_config.h"
#include "tests/support/temporary_folder.h"

namespace baton {

// Reads configurations that are those of tiny models, changed.
class HfFamilyTest : public testing::Test {
 protected:
  using Json = nlohmann::json;

  static std::string FileOf(const std::string& family, const std::string& name) {
    return std::string(BATON_TEST_DATA) + "/tiny/" + family + "/" + name;
  }
  StatusOr<ModelSpec> Read(const Json& config) {
    folder_.Write("config.json", config.dump());
    return SpecFromHfDirectory(folder_.path());
  }
  ModelSpec Good(const Json& config) {
    const auto spec = Read(config);
    EXPECT_TRUE(spec.ok()) << Message(spec.status());
    return spec.ok() ? *spec : ModelSpec{};
  }
  // The tiny model's configuration in published keys.
  static Json Tiny(const std::string& family) {
    return Json::parse(*ReadFile(FileOf(family, "config.published.json")));
  }
  // The same, without the keys of `absent`.
  ModelSpec Without(const std::string& family, const std::vector<std::string>& absent) {
    Json config = Tiny(family);
    for (const std::string& key : absent) config.erase(key);
    return Good(config);
  }

  const TemporaryFolder folder_;
};

}  // namespace baton
