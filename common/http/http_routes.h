#pragma once

#include <map>
#include <mutex>
#include <string>

#include "common/http/http_server.h"

namespace baton {

// Finds the handler for a method and path. Thread-safe.
class HttpRoutes final {
 public:
  struct Route {
    HttpServer::Handler handler;
    HttpServer::Runner run;  // empty: the server's own threads
    bool is_probe = false;
  };

  struct Match {
    Route route;        // has no handler when the path is not served, or not with this method
    std::string allow;  // the path's methods, "GET, HEAD, OPTIONS"; empty if it is not served
  };

  // Adds a route. A path that ends in "/*" serves every longer path that begins with it.
  void Add(const std::string& method, const std::string& path, Route route);
  // For HEAD, returns the route of GET.
  Match Find(const std::string& method, const std::string& path) const;

 private:
  using Methods = std::map<std::string, Route>;
  const Methods* MethodsOf(const std::string& path) const;

  mutable std::mutex mutex_;
  std::map<std::string, Methods> paths_;     // guarded by mutex_
  std::map<std::string, Methods> prefixes_;  // by the path before the "*"; guarded by mutex_
};

}  // namespace baton
