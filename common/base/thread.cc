#include "common/base/thread.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <utility>

namespace baton {

std::jthread StartThread(const std::string& name,
                         std::function<void(const std::stop_token&)> body) {
  return std::jthread(
      [name = name.substr(0, 15), body = std::move(body)](const std::stop_token& stop) {
        ::pthread_setname_np(::pthread_self(), name.c_str());
        body(stop);
      });
}

int AllowedProcessors() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof(set), &set) == 0) return std::max(1, CPU_COUNT(&set));
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

}  // namespace baton
