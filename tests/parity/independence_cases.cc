#include "tests/parity/parity.h"
namespace baton::parity {
std::vector<Case> IndependenceCases() {
  return {};
}
}  // namespace baton::parity
