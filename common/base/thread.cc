#include "common/base/thread.h"

#include <pthread.h>

#include <utility>

namespace baton {

std::jthread StartThread(const std::string& name, std::function<void(std::stop_token)> body) {
  return std::jthread([name = name.substr(0, 15), body = std::move(body)](std::stop_token stop) {
    ::pthread_setname_np(::pthread_self(), name.c_str());
    body(std::move(stop));
  });
}

}  // namespace baton
