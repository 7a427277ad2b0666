#pragma once

#include <functional>
#include <stop_token>
#include <string>
#include <thread>

namespace baton {

// Starts a thread whose name shows in ps, gdb and perf (15 characters are kept). The returned
// jthread asks for the stop and joins when destroyed.
std::jthread StartThread(const std::string& name, std::function<void(const std::stop_token&)> body);

}  // namespace baton
