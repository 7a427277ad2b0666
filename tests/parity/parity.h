#pragma once

#include <functional>
#include <string>
#include <vector>

#include "kernels/ops.h"

namespace baton::parity {

// The largest allowed errors relative to the double-precision reference. The bound of a GEMM is
// `product` · Σ|w| · max|x|; the other bounds are relative to the magnitude of the result.
struct Tolerance {
  double product = 2e-5;
  double elementwise = 1e-5;
  double attention = 2e-5;
  double stored = 0;  // relative error of storing a result as an activation
};

// The tolerance for a backend with activations of `dtype`. A backend with 16-bit activations also
// stores its weights in that type; the reference then computes with rounded weights and inputs.
Tolerance ToleranceFor(DType dtype);

// One check of a backend through the Ops interface. Failures are gtest failures.
struct Case {
  std::string name;  // letters, digits and underscores
  std::function<void(Ops&, const Tolerance&)> run;
};

// Every case of the suite: ResultCases() and IndependenceCases().
std::vector<Case> AllCases();

// Compare results with plain loops in double precision.
std::vector<Case> ResultCases();
// Check that the bits of a row are equal when it is computed alone, in a batch and in chunks.
std::vector<Case> IndependenceCases();
// As ResultCases(), with contexts of 131,072 tokens. Each takes seconds and 1 GB of memory.
std::vector<Case> LongCases();

// The exchanges between ranks. Every rank runs the case at the same time, each with its own Ops.
// For groups whose tensor_parallel or pipeline_parallel is over 1.
std::vector<Case> ExchangeCases();

std::vector<Case> LayerCases();
// With an FP8 KV cache, for backends that support it (Ops::supports_fp8_kv).
std::vector<Case> QuantizedKvCases();
std::vector<Case> QuantizedKvIndependenceCases();

std::vector<Case> MatMulCases();
std::vector<Case> RowCases();
std::vector<Case> ExpertCases();
// For backends that have FamilyOps, or routers other than plain softmax; skipped on others.
std::vector<Case> FamilyCases();
std::vector<Case> RoutingCases();
// For backends that have LatentOps; skipped on others.
std::vector<Case> LatentCases();
std::vector<Case> SparseCases();
// For backends that have RecurrentOps; skipped on others.
std::vector<Case> RecurrentCases();
std::vector<Case> AttentionCases();
std::vector<Case> SamplingCases();
std::vector<Case> WideSamplingCases();

}  // namespace baton::parity
