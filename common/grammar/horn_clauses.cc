#include "common/grammar/horn_clauses.h"

#include <numeric>

namespace baton {

std::vector<bool> HornClauses::Derive() const {
  // The clauses whose bodies contain fact f: from begin[f] to begin[f + 1].
  std::vector<size_t> begin(static_cast<size_t>(facts_) + 1, 0);
  for (const int32_t fact : body_) ++begin[static_cast<size_t>(fact) + 1];
  std::partial_sum(begin.begin(), begin.end(), begin.begin());
  std::vector<size_t> at(begin.begin(), begin.end() - 1);
  std::vector<size_t> with(body_.size());
  std::vector<size_t> missing(heads_.size());  // by clause: facts that are not derived yet
  std::vector<bool> derived(static_cast<size_t>(facts_), false);
  std::vector<int32_t> waiting;
  const auto derive = [&](int32_t fact) {
    if (derived[static_cast<size_t>(fact)]) return;
    derived[static_cast<size_t>(fact)] = true;
    waiting.push_back(fact);
  };
  size_t from = 0;
  for (size_t clause = 0; clause < heads_.size(); ++clause) {
    missing[clause] = ends_[clause] - from;
    for (; from < ends_[clause]; ++from) with[at[static_cast<size_t>(body_[from])]++] = clause;
    if (missing[clause] == 0) derive(heads_[clause]);
  }
  while (!waiting.empty()) {
    const auto fact = static_cast<size_t>(waiting.back());
    waiting.pop_back();
    for (size_t i = begin[fact]; i < begin[fact + 1]; ++i) {
      if (--missing[with[i]] == 0) derive(heads_[with[i]]);
    }
  }
  return derived;
}

}  // namespace baton
