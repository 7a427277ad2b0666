#pragma once

#include <string>
#include <string_view>

namespace baton {

// A folder with a unique name in the system's folder for temporary files. The constructor creates
// the folder; the destructor removes the folder and its content.
class TemporaryFolder final {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::string& path() const { return path_; }
  // Writes `content` to the file `name` in the folder and returns the file's path.
  std::string Write(std::string_view name, std::string_view content) const;

 private:
  std::string path_;
};

}  // namespace baton
