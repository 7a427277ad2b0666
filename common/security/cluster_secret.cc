#include "common/security/cluster_secret.h"

#include <algorithm>

#include "common/base/mapped_file.h"
#include "common/security/digest.h"

namespace baton {
namespace {

constexpr size_t kMaxFileBytes = 8192;
constexpr size_t kGeneratedBytes = 32;

bool IsPlain(char c) {
  return c > ' ' && c < 0x7f;
}

}  // namespace

StatusOr<ClusterSecret> ClusterSecret::Parse(std::string_view text) {
  std::vector<std::string> secrets;
  size_t number = 0;
  while (!text.empty()) {
    ++number;
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.remove_suffix(1);
    if (line.empty()) continue;
    if (line.size() < kMinBytes || line.size() > kMaxBytes) {
      return InvalidArgument(
          "line {} has {} characters; a secret has {} to {}, for example from "
          "`openssl rand -base64 32`",
          number,
          line.size(),
          kMinBytes,
          kMaxBytes);
    }
    if (!std::all_of(line.begin(), line.end(), IsPlain)) {
      return InvalidArgument(
          "line {} has a character that is not printable ASCII, or a space; a secret has neither",
          number);
    }
    if (secrets.size() == kMaxSecrets) {
      return InvalidArgument("there are more than {} secrets", kMaxSecrets);
    }
    secrets.emplace_back(line);
  }
  if (secrets.empty()) {
    return InvalidArgument(
        "there is no secret; write one, for example from `openssl rand -base64 32`");
  }
  return ClusterSecret(std::move(secrets));
}

StatusOr<ClusterSecret> ClusterSecret::Load(const std::string& path) {
  BATON_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMaxFileBytes));
  StatusOr<ClusterSecret> secret = Parse(text);
  if (!secret.ok()) return Annotate(secret.status(), path);
  return secret;
}

ClusterSecret ClusterSecret::With(const ClusterSecret& earlier, bool proves_earlier) const {
  const std::vector<std::string>& first = proves_earlier ? earlier.secrets_ : secrets_;
  const std::vector<std::string>& second = proves_earlier ? secrets_ : earlier.secrets_;
  std::vector<std::string> all = first;
  all.insert(all.end(), second.begin(), second.end());
  return ClusterSecret(std::move(all));
}

std::string ClusterSecret::Generate() {
  return Base64Url(RandomBytes(kGeneratedBytes)) + "\n";
}

}  // namespace baton
