#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "common/base/mapped_file.h"
#include "common/model/decoder_weights.h"
#include "common/model/describe_model.h"
#include "common/model/hf_config.h"
#include "common/model/open_model.h"
#include "tests/support/temporary_folder.h"
#include "tests/unit/model/safetensors_writer.h"

// Every member of the configuration and every tensor of every family, spoilt.
namespace baton {
namespace {

namespace fs = std::filesystem;
using testing::Contains;
using testing::HasSubstr;
using testing::StartsWith;
using Json = nlohmann::json;

std::string Tiny() {
  return std::string(BATON_TEST_DATA) + "/tiny";
}

// The folders of tests/data/tiny that have `file`, but for those of sentence-transformers, which
// the list of modules makes other checkpoints, and for those that differ from others in the sizes
// of quantised matrices only.
std::vector<std::string> FoldersWith(const std::string& file) {
  std::vector<std::string> folders;
  for (const auto& entry : fs::directory_iterator(Tiny())) {
    if (fs::exists(entry.path() / "modules.json")) continue;
    const std::string name = entry.path().filename().string();
    if (name.starts_with("qwen3_moe_") && name != "qwen3_moe_fp8_block") continue;
    if (fs::exists(entry.path() / file)) folders.push_back(name);
  }
  std::ranges::sort(folders);
  return folders;
}

// Values of other types, or far out of range, for every member.
const Json& BadValues() {
  static const Json values = {nullptr, "x", true, -1, 0, 1LL << 40, Json::array(), Json::object()};
  return values;
}

class BadConfig : public testing::TestWithParam<std::string> {
 protected:
  // A configuration with a bad member is read, or refused by the name of the member.
  void Check(const Json& config, const std::string& member, const std::string& what) {
    folder_.Write("config.json", config.dump());
    const auto spec = SpecFromHfDirectory(folder_.path());
    if (spec.ok()) return;
    ++refused_;
    const std::string error(Message(spec.status()));
    EXPECT_THAT(error, StartsWith(folder_.path() + "/config.json: ")) << member << " " << what;
    EXPECT_TRUE(Names(error, member)) << member << " " << what << ": " << error;
  }
  // Spoils each member of `object`, which is a part of `config`.
  void SpoilMembers(Json& config, Json& object) {
    const Json good = object;
    for (const auto& [member, value] : good.items()) {
      object.erase(member);
      Check(config, member, "is absent");
      for (const Json& bad : BadValues()) {
        object[member] = bad;
        Check(config, member, "is " + bad.dump());
      }
      object = good;
      if (value.is_object()) SpoilMembers(config, object[member]);
    }
  }

  int refused_ = 0;

 private:
  // Errors about several members that do not fit together name sizes in words.
  static bool Names(const std::string& error, const std::string& member) {
    if (error.find(member) != std::string::npos) return true;
    static const std::multimap<std::string, std::string> words = {
        {"architectures", "architecture"},
        {"rms_norm_eps", "norm epsilon"},
        {"layer_norm_eps", "norm epsilon"},
        {"layer_norm_epsilon", "norm epsilon"},
        {"n_group", "expert groups"},
        {"topk_group", "expert groups"},
        {"qk_rope_head_dim", "rotated dimension"},
        {"num_key_value_heads", "KV heads"},
        {"num_key_value_heads", "key heads"},
        {"linear_num_key_heads", "key heads"},
        {"partial_rotary_factor", "rotary dimension"},
        {"rotary_pct", "rotary dimension"},
        {"long_factor", "factors"},
        {"short_factor", "factors"},
        {"alpha", "rope_type dynamic"},
        {"mlp_bias", "biases"},
        {"use_sliding_window", "sliding_window"},
        {"hybrid_override_pattern", "pattern"},
        // Either of two members may state the same.
        {"hybrid_override_pattern", "layers_block_type"},
        {"linear_attn_config", "layer_types"},
        {"num_local_experts", "num_experts"},
        {"group_0", "config_groups"},
    };
    const auto [begin, end] = words.equal_range(member);
    return std::any_of(
        begin, end, [&](const auto& word) { return error.find(word.second) != std::string::npos; });
  }

  const TemporaryFolder folder_;
};

TEST_P(BadConfig, EachMemberIsReadOrRefusedByItsName) {
  const std::string folder = Tiny() + "/" + GetParam();
  const bool published = fs::exists(folder + "/config.published.json");
  Json config =
      Json::parse(*ReadFile(folder + (published ? "/config.published.json" : "/config.json")));
  SpoilMembers(config, config);
  EXPECT_GT(refused_, 30);
}

std::string NameOf(const testing::TestParamInfo<std::string>& test) {
  return test.param;
}

INSTANTIATE_TEST_SUITE_P(Families,
                         BadConfig,
                         testing::ValuesIn(FoldersWith("config.json")),
                         NameOf);

// The numbers of layers and experts in a name of a tensor, as one.
std::string PatternOf(const std::string& name) {
  std::string pattern;
  for (const char letter : name) {
    const bool digit = letter >= '0' && letter <= '9';
    if (!digit) pattern += letter;
    if (digit && (pattern.empty() || pattern.back() != '#')) pattern += '#';
  }
  return pattern;
}

// Whether a checkpoint may be without this tensor of a quantised matrix, or in any shape: what
// describes others, scales of activations, and groups of inputs that are in order.
bool IsOptional(const std::string& name) {
  const auto ends = [&](std::string_view ending) { return name.ends_with(ending); };
  return ends(".weight_shape") || ends(".input_scale") || ends(".input_global_scale") ||
         ends(".g_idx");
}

class BadCheckpoint : public testing::TestWithParam<std::string> {
 protected:
  BadCheckpoint() : good_(TensorsIn(Tiny() + "/" + GetParam())) {
    folder_.Write("config.json", *ReadFile(Tiny() + "/" + GetParam() + "/config.json"));
  }
  // What a worker says of these tensors before it loads them.
  std::string ErrorOf(const HeldTensors& tensors) {
    folder_.Write("model.safetensors", SafetensorsFileOf(tensors));
    const auto model = OpenModel(folder_.path());
    if (!model.ok()) return std::string(Message(model.status()));
    const Status complete = CheckAllWeights(model->spec, *model->weights);
    unread_ = model->weights->Unread();
    described_ = DescribeUnread(model->spec, *model->weights);
    return complete.ok() ? "" : std::string(Message(complete));
  }

  const HeldTensors good_;
  const TemporaryFolder folder_;
  std::vector<std::string> unread_;
  std::vector<std::string> described_;
};

TEST_P(BadCheckpoint, ATensorThatIsMissingOrOfAnotherShapeIsNamed) {
  ASSERT_EQ(ErrorOf(good_), "");
  const std::set<std::string> unread(unread_.begin(), unread_.end());
  std::set<std::string> seen;
  for (const auto& [name, tensor] : good_) {
    if (unread.contains(name) || IsOptional(name)) continue;
    if (!seen.insert(PatternOf(name)).second) continue;
    HeldTensors bad = good_;
    bad.erase(name);
    EXPECT_THAT(ErrorOf(bad), HasSubstr(name + " is missing"));
    HeldTensor& longer = bad[name] = tensor;
    longer.bytes.resize(longer.bytes.size() + longer.bytes.size() / longer.shape.front());
    ++longer.shape.front();
    EXPECT_THAT(ErrorOf(bad), HasSubstr("tensor " + name + " has shape"));
    HeldTensor& deeper = bad[name] = tensor;
    deeper.shape.insert(deeper.shape.begin(), {1, 1, 1, 1});
    EXPECT_THAT(ErrorOf(bad), HasSubstr("tensor " + name + " has shape"));
  }
  EXPECT_GT(seen.size(), 5u);
}

TEST_P(BadCheckpoint, ASurplusTensorIsNamedAndNotLoaded) {
  HeldTensors more = good_;
  more["model.layers.0.surplus.weight"] = {DType::kF32, {1}, std::vector<std::byte>(4)};
  EXPECT_EQ(ErrorOf(more), "");
  EXPECT_THAT(described_, Contains(HasSubstr("model.layers.*.surplus.weight is not loaded")));
}

INSTANTIATE_TEST_SUITE_P(Families,
                         BadCheckpoint,
                         testing::ValuesIn(FoldersWith("model.safetensors")),
                         NameOf);

}  // namespace
}  // namespace baton
