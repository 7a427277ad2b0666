#include <gtest/gtest.h>

#include "common/cpu_check/build_features.h"

namespace baton {
namespace {

FeatureSet All() {
  FeatureSet all{};
  for (bool& has : all.has) has = true;
  return all;
}

TEST(RequireFeatures, EndsTheProcessWithALineThatNamesWhatIsMissing) {
  FeatureSet used{};
  used.has[1] = true;
  const char* const message =
#if defined(__x86_64__)
      "^this program was compiled for processors with AVX, which this one does not have: .*\n$";
#else
      "^this program was compiled for processors with dot products, which this one does not "
      "have: .*\n$";
#endif
  EXPECT_EXIT(RequireFeatures(used, FeatureSet{}), testing::ExitedWithCode(1), message);
  FeatureSet others = All();
  others.has[1] = false;
  EXPECT_EXIT(RequireFeatures(used, others), testing::ExitedWithCode(1), message);
}

TEST(RequireFeatures, AcceptsAProcessorThatHasWhatTheBuildUses) {
  RequireFeatures(FeatureSet{}, FeatureSet{});
  RequireFeatures(All(), All());
  FeatureSet used{};
  used.has[0] = true;
  RequireFeatures(used, used);
}

}  // namespace
}  // namespace baton
