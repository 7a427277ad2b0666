#pragma once

#include <map>
#include <mutex>
#include <string>

#include "common/http/http_server.h"

namespace baton {

// Which handler serves a method and path. Thread-safe.
class HttpRoutes final {
 public:
  struct Route {
    HttpServer::Handler handler;
    bool is_probe = false;
  };

  struct Match {
    Route route;        // without a handler when the path, or the method on it, is not served
    std::string allow;  // "GET, HEAD, OPTIONS": the path's methods; empty when it is not served
  };

  // A path that ends in "/*" serves every path that is longer.
  void Add(const std::string& method, const std::string& path, Route route);
  // HEAD finds the route of GET.
  Match Find(const std::string& method, const std::string& path) const;

 private:
  using Methods = std::map<std::string, Route>;
  const Methods* MethodsOf(const std::string& path) const;

  mutable std::mutex mutex_;
  std::map<std::string, Methods> paths_;     // guarded by mutex_
  std::map<std::string, Methods> prefixes_;  // by the path before the "*"; guarded by mutex_
};

}  // namespace baton
