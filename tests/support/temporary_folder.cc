#include "tests/support/temporary_folder.h"

#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <system_error>

#include "common/base/check.h"

namespace baton {

TemporaryFolder::TemporaryFolder()
    : path_((std::filesystem::temp_directory_path() / "baton_test_XXXXXX").string()) {
  BATON_CHECK(::mkdtemp(path_.data()) != nullptr, "cannot create the folder {}", path_);
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::string TemporaryFolder::Write(std::string_view name, std::string_view content) const {
  const auto file = std::filesystem::path(path_) / name;
  std::ofstream out(file, std::ios::binary);
  out.write(content.data(), static_cast<std::streamsize>(content.size()));
  BATON_CHECK(out.flush().good(), "cannot write {}", file.string());
  return file.string();
}

}  // namespace baton
