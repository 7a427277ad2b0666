#include "tests/e2e/two_hosts.h"

#include <cstdlib>

#include <gtest/gtest.h>

namespace baton {

std::string TwoHostsVariable(const char* name) {
  const char* const value = std::getenv(name);
  if (value == nullptr) {
    ADD_FAILURE() << name << " is not set: tests/e2e/two_hosts.sh starts this test";
    return "";
  }
  return value;
}

}  // namespace baton
