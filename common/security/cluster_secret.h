#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"

namespace baton {

// The secret that all processes of a cluster share. Immutable, so thread-safe.
class ClusterSecret final {
 public:
  static constexpr size_t kMinBytes = 32;
  static constexpr size_t kMaxBytes = 1024;
  static constexpr size_t kMaxSecrets = 4;

  // Parses the content of a secret's file: one secret per line, each of kMinBytes to kMaxBytes
  // printable ASCII characters without spaces. A process proves itself with its first secret to
  // those that it dials, and accepts all of its secrets. Errors: InvalidArgument, which never
  // repeats the content.
  static StatusOr<ClusterSecret> Parse(std::string_view text);
  // Errors of ReadFile and Parse, which name the path.
  static StatusOr<ClusterSecret> Load(const std::string& path);
  // This secret, which also accepts the secrets of `earlier`, and proves itself with them if
  // `proves_earlier`.
  ClusterSecret With(const ClusterSecret& earlier, bool proves_earlier) const;
  // A new random secret as the content of a file.
  static std::string Generate();

  const std::string& own() const { return secrets_.front(); }
  const std::vector<std::string>& accepted() const { return secrets_; }
  bool operator==(const ClusterSecret&) const = default;

 private:
  explicit ClusterSecret(std::vector<std::string> secrets) : secrets_(std::move(secrets)) {}

  std::vector<std::string> secrets_;
};

}  // namespace baton
