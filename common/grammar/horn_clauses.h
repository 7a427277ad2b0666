#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <vector>

namespace baton {

// Clauses "head, if all of body" over facts with the numbers from 0 to `facts` - 1.
class HornClauses final {
 public:
  explicit HornClauses(int32_t facts) : facts_(facts) {}

  // An empty body states `head` itself.
  void Add(int32_t head, std::span<const int32_t> body) {
    heads_.push_back(head);
    body_.insert(body_.end(), body.begin(), body.end());
    ends_.push_back(body_.size());
  }
  void Add(int32_t head, std::initializer_list<int32_t> body) {
    Add(head, std::span(body.begin(), body.size()));
  }

  // For each fact, whether it follows from the clauses. Takes time linear in their size (Dowling
  // and Gallier, Linear-time algorithms for testing the satisfiability of propositional Horn
  // formulae, 1984).
  std::vector<bool> Derive() const;

 private:
  const int32_t facts_;
  std::vector<int32_t> heads_;  // by clause
  std::vector<size_t> ends_;    // by clause: where its part of body_ ends
  std::vector<int32_t> body_;
};

}  // namespace baton
