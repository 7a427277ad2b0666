#pragma once

#include <string>
#include <string_view>

namespace baton {

// A folder of a test's own, under the system's folder for temporary files: made with a fresh name,
// removed with all that is in it.
class TemporaryFolder final {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::string& path() const { return path_; }
  // Writes a file of that name and returns its path.
  std::string Write(std::string_view name, std::string_view content) const;

 private:
  std::string path_;
};

}  // namespace baton
