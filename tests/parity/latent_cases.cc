#include <cmath>
#include <string>

#include <gtest/gtest.h>

#include "tests/parity/latent_run.h"
#include "tests/parity/parity.h"

// Multi-head latent attention in the absorbed form, against keys and values of each head.
namespace baton::parity {
namespace {

void CheckLatents(Ops& ops, const Tolerance& tolerance, DType dtype, const LatentShape& shape) {
  if (ops.latent_ops() == nullptr) GTEST_SKIP() << "this backend has no latent attention";
  const LatentRun run(ops, dtype, shape);
  const std::vector<float> got = run.Compute();
  const std::vector<double> want = run.Expected();
  // Both round latents to the type of the cache, but not always to the same number.
  const double stored = dtype == DType::kF32 ? 0 : dtype == DType::kF16 ? 1e-3 : 1e-2;
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_NEAR(got[i], want[i], (10 * tolerance.attention + stored) * (1 + std::fabs(want[i])))
        << "number " << i;
  }
}

}  // namespace

std::vector<Case> LatentCases() {
  std::vector<Case> cases;
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    cases.push_back(
        {"Latents_" + std::string(Name(dtype)), [dtype](Ops& ops, const Tolerance& tolerance) {
           CheckLatents(ops, tolerance, dtype, kOddLatents);
         }});
  }
  // The sizes of DeepSeek's latents, for which a GPU has kernels of their own. The heads fill one
  // tile or several, and not all of the last one.
  for (const int32_t heads : {5, 19, 40}) {
    const LatentShape shape = {
        .heads = heads, .rank = 512, .nope_dim = 8, .rope_dim = 64, .value_dim = 8};
    cases.push_back(
        {"WideLatents_" + std::to_string(heads), [shape](Ops& ops, const Tolerance& tolerance) {
           CheckLatents(ops, tolerance, DType::kBF16, shape);
         }});
  }
  return cases;
}

}  // namespace baton::parity
