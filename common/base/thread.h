#pragma once

#include <functional>
#include <stop_token>
#include <string>
#include <thread>

namespace baton {

// Starts a thread. ps, gdb and perf show the first 15 characters of its name. The destructor of the
// returned jthread requests the stop and joins the thread.
std::jthread StartThread(const std::string& name, std::function<void(const std::stop_token&)> body);

// The number of processors that this process may run on: fewer than the machine has in a container
// with a CPU set, or under taskset.
int AllowedProcessors();

}  // namespace baton
