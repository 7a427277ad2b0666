#include "common/base/thread.h"

#include <pthread.h>

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

}  // namespace baton
