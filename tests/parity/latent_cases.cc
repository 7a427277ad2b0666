#include <cmath>

#include <gtest/gtest.h>

#include "tests/parity/latent_run.h"
#include "tests/parity/parity.h"

// Multi-head latent attention in the absorbed form, against keys and values of each head.
namespace baton::parity {
namespace {

void CheckLatents(Ops& ops, const Tolerance& tolerance, DType dtype) {
  if (ops.latent_ops() == nullptr) GTEST_SKIP() << "this backend has no latent attention";
  const LatentRun run(ops, dtype);
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
        {"Latents_" + std::string(Name(dtype)),
         [dtype](Ops& ops, const Tolerance& tolerance) { CheckLatents(ops, tolerance, dtype); }});
  }
  return cases;
}

}  // namespace baton::parity
