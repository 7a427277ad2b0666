#include "common/http/http_routes.h"

#include <utility>

namespace baton {

void HttpRoutes::Add(const std::string& method, const std::string& path, Route route) {
  std::lock_guard lock(mutex_);
  if (path.ends_with("/*")) {
    prefixes_[path.substr(0, path.size() - 1)][method] = std::move(route);
  } else {
    paths_[path][method] = std::move(route);
  }
}

const HttpRoutes::Methods* HttpRoutes::MethodsOf(const std::string& path) const {
  const auto found = paths_.find(path);
  if (found != paths_.end()) return &found->second;
  const Methods* longest = nullptr;  // prefixes_ is sorted, so a longer prefix comes later
  for (const auto& [prefix, methods] : prefixes_) {
    if (path.size() > prefix.size() && path.starts_with(prefix)) longest = &methods;
  }
  return longest;
}

HttpRoutes::Match HttpRoutes::Find(const std::string& method, const std::string& path) const {
  std::lock_guard lock(mutex_);
  const Methods* methods = MethodsOf(path);
  if (methods == nullptr) return {};
  Match match;
  for (const auto& [served, route] : *methods) {
    if (served != "OPTIONS") match.allow += served + ", ";
    if (served == "GET") match.allow += "HEAD, ";
    if (served == (method == "HEAD" ? "GET" : method)) match.route = route;
  }
  match.allow += "OPTIONS";
  return match;
}

}  // namespace baton
