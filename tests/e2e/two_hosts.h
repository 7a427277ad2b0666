#pragma once

#include <string>

namespace baton {

// The value of an environment variable that two_hosts.sh sets. The test fails when it is not set,
// because two_hosts.sh has not started the test.
std::string TwoHostsVariable(const char* name);

}  // namespace baton
