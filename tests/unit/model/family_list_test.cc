#include "common/model/family_list.h"

#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include <absl/strings/str_split.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/base/mapped_file.h"
#include "common/model/gguf_config.h"
#include "common/model/hf_families.h"
#include "common/model/op_variants.h"
#include "common/model/open_model.h"
#include "kernels/cuda/table/variant_check.h"

namespace baton {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

const std::string kTiny = std::string(BATON_TEST_DATA) + "/tiny";

TEST(FamilyList, HasEachFamilyOnce) {
  std::set<ModelFamily> listed;
  for (const FamilyEntry& entry : FamilyList()) {
    EXPECT_TRUE(listed.insert(entry.family).second) << Name(entry.family);
  }
  std::set<ModelFamily> read;
  for (const HfFamily& family : HfFamilies()) read.insert(family.family);
  EXPECT_EQ(listed, read);
}

TEST(FamilyList, EachFamilyHasGoldenOutputs) {
  for (const FamilyEntry& entry : FamilyList()) {
    const std::string folder = kTiny + "/" + std::string(entry.golden);
    EXPECT_TRUE(fs::exists(folder + "/golden.json")) << Name(entry.family);
    const auto spec = LoadModelSpec(folder);
    ASSERT_TRUE(spec.ok()) << Message(spec.status());
    EXPECT_EQ(spec->family, entry.family) << entry.golden;
  }
}

TEST(FamilyList, EachFolderWithGoldenOutputsHasAFamilyOfTheList) {
  int folders = 0;
  for (const auto& folder : fs::directory_iterator(kTiny)) {
    if (!fs::exists(folder.path() / "golden.json")) continue;
    ++folders;
    const auto spec = LoadModelSpec(folder.path().string());
    ASSERT_TRUE(spec.ok()) << Message(spec.status());
    const auto listed = std::ranges::find(FamilyList(), spec->family, &FamilyEntry::family);
    EXPECT_NE(listed, FamilyList().end()) << folder.path();
  }
  EXPECT_GE(folders, static_cast<int>(FamilyList().size()));
}

TEST(FamilyList, SaysOfGpusWhatTheKernelTableSays) {
  for (const FamilyEntry& entry : FamilyList()) {
    const auto spec = LoadModelSpec(kTiny + "/" + std::string(entry.golden));
    ASSERT_TRUE(spec.ok()) << Message(spec.status());
    EXPECT_EQ(cuda::CheckVariants(VariantsOf(*spec)).ok(), entry.gpu != GpuSupport::kNone)
        << Name(entry.family);
  }
}

TEST(FamilyList, HasEachArchitectureOfGgufFiles) {
  std::set<std::string> listed;
  for (const FamilyEntry& entry : FamilyList()) {
    const std::vector<std::string> names =
        absl::StrSplit(std::string(entry.gguf), ", ", absl::SkipEmpty());
    listed.insert(names.begin(), names.end());
  }
  std::set<std::string> read;
  for (const std::string_view name : GgufArchitectures()) read.emplace(name);
  EXPECT_EQ(listed, read);
}

TEST(FamilyList, IsTheTableOfTheReadme) {
  const auto readme = ReadFile(std::string(BATON_TEST_DATA) + "/../../common/model/README.md");
  ASSERT_TRUE(readme.ok()) << Message(readme.status());
  EXPECT_THAT(*readme, HasSubstr(FamilyTableInMarkdown()))
      << "print the table with: baton model families --markdown";
}

}  // namespace
}  // namespace baton
