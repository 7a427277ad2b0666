#pragma once

#include <string>
#include <vector>

namespace baton {

// Runs a script of this folder with the Python packages of the clients. The script prints what
// fails; a failure fails the test.
void RunScript(const std::string& script, const std::vector<std::string>& arguments);

}  // namespace baton
