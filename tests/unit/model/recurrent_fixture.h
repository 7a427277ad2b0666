#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "common/base/check.h"
#include "common/model/open_model.h"
#include "tests/unit/model/hf_family_fixture.h"
#include "tests/unit/model/safetensors_writer.h"
#include "tests/unit/model/step_runner.h"

namespace baton {

// Tests of a tiny model with recurrent layers, and of variants of it.
class RecurrentModelTest : public HfFamilyTest {
 protected:
  explicit RecurrentModelTest(std::string family) : family_(std::move(family)) {}

  std::string Path() const { return std::string(BATON_TEST_DATA) + "/tiny/" + family_; }
  OpenedModel Open() const { return OpenAt(Path()); }
  std::string ErrorWith(const std::string& key, const nlohmann::json& value) {
    nlohmann::json config = Tiny(family_);
    config[key] = value;
    return std::string(Message(Read(config).status()));
  }
  // The model with other tensors.
  OpenedModel OpenWith(const HeldTensors& tensors) {
    folder_.Write("config.json", Tiny(family_).dump());
    folder_.Write("model.safetensors", SafetensorsFileOf(tensors));
    return OpenAt(folder_.path());
  }
  static std::unique_ptr<StepRunner> RunnerOf(const OpenedModel& model) {
    auto runner = StepRunner::Create(model.spec, *model.weights);
    BATON_CHECK(runner.ok(), "{}", Message(runner.status()));
    return *std::move(runner);
  }
  static std::vector<TokenId> Tokens(size_t count) {
    std::vector<TokenId> tokens;
    for (size_t i = 0; i < count; ++i) {
      tokens.push_back(static_cast<TokenId>((7 + 37 * i + i * i % 11) % 512));
    }
    return tokens;
  }

 private:
  static OpenedModel OpenAt(const std::string& path) {
    auto model = OpenModel(path);
    BATON_CHECK(model.ok(), "{}", Message(model.status()));
    return *std::move(model);
  }

  const std::string family_;
};

}  // namespace baton
