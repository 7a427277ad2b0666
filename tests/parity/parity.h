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
};

// One check of a backend, through the Ops interface alone. Fails as gtest expectations.
struct Case {
  std::string name;  // letters, digits and underscores
  std::function<void(Ops&, const Tolerance&)> run;
};

// Every case of the suite: results against plain loops in double precision, and bit-equality of a
// row computed alone, in a batch, in chunks.
std::vector<Case> AllCases();

std::vector<Case> MatMulCases();
std::vector<Case> RowCases();
std::vector<Case> AttentionCases();
std::vector<Case> SamplingCases();
std::vector<Case> IndependenceCases();

}  // namespace baton::parity
