#include "common/base/shared_object.h"

#include <dlfcn.h>

#include <filesystem>
#include <system_error>
#include <vector>

namespace baton {
namespace {

std::vector<std::filesystem::path> PlacesOf(const SharedObject& object) {
  if (!object.path.empty()) return {object.path};
  std::error_code error;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", error);
  const std::filesystem::path folder = program.parent_path();
  return {folder / object.file,
          folder.parent_path() / "lib" / object.file,
          folder.parent_path() / "bin" / object.file};
}

}  // namespace

StatusOr<void*> OpenSharedObject(const SharedObject& object) {
  std::string tried;
  for (const std::filesystem::path& place : PlacesOf(object)) {
    std::error_code error;
    if (!std::filesystem::exists(place, error)) {
      tried += fmt::format("{}{}", tried.empty() ? "" : ", ", place.string());
      continue;
    }
    void* library = dlopen(place.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library != nullptr) return library;
    return MakeStatus(
        StatusCode::kNotFound, "{} does not load: {}; {}", object.what, dlerror(), object.advice);
  }
  return MakeStatus(StatusCode::kNotFound,
                    "{} is not there: looked for {}; {}",
                    object.what,
                    tried,
                    object.advice);
}

}  // namespace baton
