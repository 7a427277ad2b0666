#include "common/model/fingerprint.h"

#include <filesystem>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "common/model/model_identity.h"
#include "tests/support/temporary_folder.h"

namespace baton {
namespace {

namespace fs = std::filesystem;

const std::string kModel = BATON_TEST_DATA "/tiny/llama_gqa";

TokenizerSpec Small() {
  TokenizerSpec spec;
  spec.pieces = {{"a", PieceKind::kNormal}, {"b", PieceKind::kNormal}, {"ab", PieceKind::kNormal}};
  spec.merges = {{0, 1, 2, 0}};
  spec.added = {{2, "<x>", true, false, false, false, false}};
  spec.normalizer = {{NormalizerStep::Kind::kReplace, "p", "q"}};
  spec.splits = {{SplitStep::Kind::kRegex, PatternKind::kGpt2, "r"}};
  spec.prefix = {1};
  spec.bos = 1;
  return spec;
}

TEST(TokenizerHash, TellsEveryDifferenceThatTextCanMeet) {
  using Change = std::function<void(TokenizerSpec&)>;
  const std::vector<Change> changes = {
      [](auto&) {},
      [](auto& s) { s.alphabet = BpeAlphabet::kCharacters; },
      [](auto& s) { s.pieces[0].bytes = "c"; },
      [](auto& s) { s.pieces[0].kind = PieceKind::kByte; },
      [](auto& s) {
        s.pieces.push_back({"c", PieceKind::kNormal});
      },
      [](auto& s) { s.merges[0].left = 1; },
      [](auto& s) { s.merges[0].rank = 1; },
      [](auto& s) { s.merges.clear(); },
      [](auto& s) { s.added[0].id = 1; },
      [](auto& s) { s.added[0].text = "<y>"; },
      [](auto& s) { s.added[0].special = false; },
      [](auto& s) { s.added[0].lstrip = true; },
      [](auto& s) { s.added[0].rstrip = true; },
      [](auto& s) { s.added[0].single_word = true; },
      [](auto& s) { s.added[0].normalized = true; },
      [](auto& s) { s.normalizer[0].kind = NormalizerStep::Kind::kPrepend; },
      [](auto& s) { s.normalizer[0].to = "r"; },
      [](auto& s) { s.prefix_space = PrefixSpace::kAlways; },
      [](auto& s) { s.metaspace = true; },
      [](auto& s) { s.splits[0].regex = "s"; },
      [](auto& s) { s.splits[0].kind = SplitStep::Kind::kDigits; },
      [](auto& s) { s.ignore_merges = true; },
      [](auto& s) { s.fuse_unknown = true; },
      [](auto& s) { s.byte_fallback = true; },
      [](auto& s) { s.strip_first_space = true; },
      [](auto& s) { s.prefix = {2}; },
      [](auto& s) { s.suffix = {1}; },
      [](auto& s) { s.bos = 2; },
      [](auto& s) { s.unknown = 0; },
      [](auto& s) { s.padding = 0; },
  };
  std::set<Hash128> seen;
  for (size_t i = 0; i < changes.size(); ++i) {
    TokenizerSpec spec = Small();
    changes[i](spec);
    EXPECT_TRUE(seen.insert(TokenizerHash(spec)).second) << "change " << i;
  }
  EXPECT_EQ(TokenizerHash(Small()), TokenizerHash(Small()));
}

TEST(TokenizerHash, DoesNotTakeTextForStructure) {
  TokenizerSpec one = Small();
  TokenizerSpec other = Small();
  one.pieces = {{"a\npiece 1:b", PieceKind::kNormal}};
  other.pieces = {{"a", PieceKind::kNormal}, {"b", PieceKind::kNormal}};
  EXPECT_NE(TokenizerHash(one), TokenizerHash(other));
}

TEST(ModelIdentity, DoesNotDependOnTheContextLengthThatASettingShortens) {
  auto model = OpenModel(kModel);
  ASSERT_TRUE(model.ok()) << model.status();
  const Hash128 shape = ShapeHash(model->spec);
  const Hash128 whole = Fingerprint(model->spec, *model->weights);
  model->spec.context_length /= 2;
  EXPECT_EQ(ShapeHash(model->spec), shape);
  EXPECT_EQ(Fingerprint(model->spec, *model->weights), whole);
  model->spec.vocab += 1;
  EXPECT_NE(ShapeHash(model->spec), shape);
}

TEST(ModelIdentity, IsTheSameForWhoHasOnlyPartOfTheFiles) {
  const auto whole = IdentifyModel(kModel, {});
  ASSERT_TRUE(whole.ok()) << whole.status();
  EXPECT_NE(whole->shape, Hash128());
  EXPECT_NE(whole->fingerprint, Hash128());
  const TemporaryFolder folder;
  fs::copy_file(kModel + "/config.json", folder.path() + "/config.json");
  const auto shape_alone = IdentifyModel(folder.path(), {});
  ASSERT_TRUE(shape_alone.ok()) << shape_alone.status();
  EXPECT_EQ(shape_alone->shape, whole->shape);
  EXPECT_EQ(shape_alone->fingerprint, Hash128());
  EXPECT_EQ(shape_alone->tokenizer, Hash128());
  EXPECT_EQ(IdentifyModel("/no/such/model", {}).status().code(), StatusCode::kNotFound);
}

TEST(ModelIdentity, OfDummyWeightsIsTheirSeeds) {
  const auto dummy = [](uint64_t seed) {
    const auto identity = IdentifyModel(kModel, {.format = LoadFormat::kDummy, .dummy_seed = seed});
    EXPECT_TRUE(identity.ok()) << identity.status();
    return identity.value_or(ModelIdentity()).fingerprint;
  };
  EXPECT_EQ(dummy(1), dummy(1));
  EXPECT_NE(dummy(1), dummy(2));
  EXPECT_NE(dummy(1), IdentifyModel(kModel, {})->fingerprint);
}

}  // namespace
}  // namespace baton
