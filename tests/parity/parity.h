#pragma once

#include <functional>
#include <string>
#include <vector>

#include "kernels/ops.h"

namespace baton::parity {

// How far a backend may be from the double-precision reference. A product's bound is
// `product` · Σ|w| · max|x|; other results are compared relative to their own size.
struct Tolerance {
  double product = 2e-5;
  double elementwise = 1e-5;
  double attention = 2e-5;
  double stored = 0;  // what a result loses when it is stored as an activation, of its size
};

// The tolerance for a backend with activations of `dtype`. A backend with 16-bit activations holds
// its weights in that type, too: the reference then computes with rounded weights and inputs.
Tolerance ToleranceFor(DType dtype);

// One check of a backend, through the Ops interface alone. Fails as gtest expectations.
struct Case {
  std::string name;  // letters, digits and underscores
  std::function<void(Ops&, const Tolerance&)> run;
};

// Every case of the suite: ResultCases() and IndependenceCases().
std::vector<Case> AllCases();

// Results against plain loops in double precision.
std::vector<Case> ResultCases();
// Bit-equality of a row computed alone, in a batch, in chunks.
std::vector<Case> IndependenceCases();
// As ResultCases(), with contexts of 131,072 tokens: seconds and a GB of memory each.
std::vector<Case> LongCases();

std::vector<Case> LayerCases();
// With a KV cache in E4M3, for backends that have it (Ops::quantizes_kv).
std::vector<Case> QuantizedKvCases();
std::vector<Case> QuantizedKvIndependenceCases();

std::vector<Case> MatMulCases();
std::vector<Case> RowCases();
std::vector<Case> AttentionCases();
std::vector<Case> SamplingCases();
std::vector<Case> WideSamplingCases();

}  // namespace baton::parity
