#include "common/config/home.h"

#include <cstdlib>

namespace baton {
namespace {

std::string Environment(const char* name) {
  const char* value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): nobody calls setenv
  return value == nullptr ? "" : value;
}

}  // namespace

std::string HomeFolder() {
  if (auto home = Environment("BATON_HOME"); !home.empty()) return home;
  if (const auto cache = Environment("XDG_CACHE_HOME"); !cache.empty()) return cache + "/baton";
  return Environment("HOME") + "/.cache/baton";
}

std::string ConfigFolder() {
  if (const auto config = Environment("XDG_CONFIG_HOME"); !config.empty()) return config + "/baton";
  return Environment("HOME") + "/.config/baton";
}

}  // namespace baton
