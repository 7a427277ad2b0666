#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>

#include <CLI/CLI.hpp>

#include "cli/commands.h"
#include "cli/format.h"
#include "cli/report.h"
#include "common/base/unique_fd.h"
#include "common/security/api_keys.h"
#include "common/security/cluster_secret.h"

namespace baton {
namespace {

struct KeyFlags {
  std::string file;
  std::string id;
  std::string tenant;
  std::string expires;
  KeyLimits limits;
};

Status SystemError(std::string_view what, const std::string& path) {
  return MakeStatus(StatusCode::kUnavailable, "{} {}: {}", what, path, std::strerror(errno));
}

// Writes the file as a whole, so that a process that reads it never sees a part: first another
// file, which only this user can read unless the file exists with other permissions, then a rename.
Status WriteWhole(const std::string& path, const std::string& text) {
  const std::string next = path + ".new";
  {
    const UniqueFd file(
        ::open(next.c_str(),
               O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK,
               0600));  // O_NONBLOCK: a named pipe without a reader is an error, not a wait
    if (!file.valid()) return SystemError("create", next);
    std::error_code error;
    const auto before = std::filesystem::status(path, error);
    if (!error && std::filesystem::exists(before)) {
      std::filesystem::permissions(next, before.permissions(), error);
    }
    for (size_t at = 0; at < text.size();) {
      const ssize_t written = ::write(file.get(), text.data() + at, text.size() - at);
      if (written < 0) return SystemError("write", next);
      at += static_cast<size_t>(written);
    }
    if (::fsync(file.get()) != 0) return SystemError("write", next);
  }
  if (::rename(next.c_str(), path.c_str()) != 0) return SystemError("replace", path);
  return OkStatus();
}

// The keys in the file; none if it does not exist yet.
StatusOr<ApiKeys> LoadOrEmpty(const std::string& path) {
  StatusOr<ApiKeys> keys = ApiKeys::Load(path);
  if (keys.status().code() == StatusCode::kNotFound) return ApiKeys();
  return keys;
}

Status AddKey(const KeyFlags& flags) {
  BATON_ASSIGN_OR_RETURN(ApiKeys keys, LoadOrEmpty(flags.file));
  const std::string secret = ApiKeys::Generate();
  ApiKey key;
  key.name = flags.id;
  key.tenant = flags.tenant.empty() ? flags.id : flags.tenant;
  key.digest = Sha256(secret);
  key.limits = flags.limits;
  if (!flags.expires.empty()) {
    BATON_ASSIGN_OR_RETURN(key.expires_s, ParseExpiry(flags.expires));
  }
  const std::string id = key.id();
  BATON_RETURN_IF_ERROR(keys.Add(std::move(key)));
  BATON_RETURN_IF_ERROR(WriteWhole(flags.file, keys.ToJson()));
  fmt::print(stderr,
             "{} is in {}. The file has only a hash of the key, so the key is shown once:\n",
             id,
             flags.file);
  fmt::print("{}\n", secret);
  return OkStatus();
}

Status ListKeys(const KeyFlags& flags) {
  BATON_ASSIGN_OR_RETURN(const ApiKeys keys, ApiKeys::Load(flags.file));
  std::vector<std::vector<std::string>> rows = {{"KEY", "EXPIRES", "STATE"}};
  for (const ApiKey& key : keys.keys()) {
    rows.push_back({key.id(),
                    key.expires_s.has_value() ? FormatExpiry(*key.expires_s) : "never",
                    key.revoked ? "revoked" : "valid"});
  }
  fmt::print("{}", FormatTable(rows));
  return OkStatus();
}

Status RevokeKey(const KeyFlags& flags) {
  BATON_ASSIGN_OR_RETURN(ApiKeys keys, ApiKeys::Load(flags.file));
  const bool has_tenant = flags.id.find('/') != std::string::npos;
  const std::string id = has_tenant ? flags.id : flags.id + "/" + flags.id;
  BATON_RETURN_IF_ERROR(keys.Revoke(id));
  BATON_RETURN_IF_ERROR(WriteWhole(flags.file, keys.ToJson()));
  fmt::print("{} is revoked; routers notice within a second\n", id);
  return OkStatus();
}

void AddFileFlag(CLI::App& command, KeyFlags& flags) {
  command
      .add_option("--file",
                  flags.file,
                  "the file of keys that security.api_keys_file or security.admin_keys_file names")
      ->required();
}

void AddLimitFlags(CLI::App& command, KeyLimits& limits) {
  const auto add = [&command](const char* name, auto& to, const char* text) {
    command.add_option(name, to, text)->check(CLI::PositiveNumber);
  };
  add("--requests-in-flight", limits.requests_in_flight, "the most requests at the same time");
  add("--requests-per-second", limits.requests_per_second, "the most requests a second");
  add("--tokens-per-second",
      limits.tokens_per_second,
      "the most tokens a second, of prompts and answers together");
  add("--body-bytes", limits.body_bytes, "the most bytes of an HTTP request's body");
  add("--prompt-tokens", limits.prompt_tokens, "the most tokens of a prompt");
  add("--output-tokens",
      limits.output_tokens,
      "the most tokens of an answer, all samples together");
}

}  // namespace

void AddKeyCommand(CLI::App& app, int& exit_status) {
  auto flags = std::make_shared<KeyFlags>();
  CLI::App* key = app.add_subcommand("key", "Add, list and revoke API keys in a file");
  key->require_subcommand(1);

  CLI::App* add = key->add_subcommand("add", "Make a key and print it");
  add->add_option("name", flags->id, "the name of the key in logs and status")->required();
  AddFileFlag(*add, *flags);
  add->add_option("--tenant",
                  flags->tenant,
                  "whose prompts may share the prefix cache; default: the name of the key")
      ->type_name("TEXT");
  add->add_option(
      "--expires", flags->expires, "a date, 2027-01-31, or a time, 2027-01-31T12:00:00Z");
  AddLimitFlags(*add, flags->limits);
  add->callback([flags, &exit_status] { exit_status = Report(AddKey(*flags)); });

  CLI::App* list = key->add_subcommand("list", "List the keys of a file");
  AddFileFlag(*list, *flags);
  list->callback([flags, &exit_status] { exit_status = Report(ListKeys(*flags)); });

  CLI::App* revoke = key->add_subcommand("revoke", "Make a key invalid");
  revoke->add_option("key", flags->id, "tenant/name as `baton key list` prints it, or the name")
      ->required();
  AddFileFlag(*revoke, *flags);
  revoke->callback([flags, &exit_status] { exit_status = Report(RevokeKey(*flags)); });

  CLI::App* secret =
      key->add_subcommand("secret", "Print a new secret for security.cluster_secret_file");
  secret->callback([&exit_status] {
    fmt::print("{}", ClusterSecret::Generate());
    exit_status = 0;
  });
}

}  // namespace baton
