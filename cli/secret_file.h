#pragma once

#include <memory>
#include <string>

#include "common/base/status.h"

namespace baton {

// A new cluster secret in a file that only this user can read. The destructor removes the file.
class SecretFile final {
 public:
  static StatusOr<std::unique_ptr<SecretFile>> Create();
  ~SecretFile();
  SecretFile(const SecretFile&) = delete;
  SecretFile& operator=(const SecretFile&) = delete;

  const std::string& path() const { return path_; }

 private:
  explicit SecretFile(std::string path) : path_(std::move(path)) {}

  const std::string path_;
};

}  // namespace baton
