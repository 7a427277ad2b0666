#include "cli/temporary_secret_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "common/base/unique_fd.h"
#include "common/security/cluster_secret.h"

namespace baton {

StatusOr<std::unique_ptr<TemporarySecretFile>> TemporarySecretFile::Create() {
  std::error_code error;
  std::string path = (std::filesystem::temp_directory_path(error) / "baton-secret-XXXXXX").string();
  if (error) return MakeStatus(StatusCode::kUnavailable, "temporary folder: {}", error.message());
  const UniqueFd file(::mkostemp(path.data(), O_CLOEXEC));  // with mode 0600
  if (!file.valid()) {
    return MakeStatus(StatusCode::kUnavailable, "create {}: {}", path, std::strerror(errno));
  }
  std::unique_ptr<TemporarySecretFile> secret(new TemporarySecretFile(path));
  const std::string text = ClusterSecret::Generate();
  if (::write(file.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
    return MakeStatus(StatusCode::kUnavailable, "write {}: {}", path, std::strerror(errno));
  }
  return secret;
}

TemporarySecretFile::~TemporarySecretFile() {
  ::unlink(path_.c_str());
}

}  // namespace baton
