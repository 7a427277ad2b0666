#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "common/security/cluster_secret.h"
#include "common/security/file_watch.h"
#include "common/security/refusals.h"
#include "common/security/reloaded_file.h"

namespace baton {

// A secret that is replaced while processes run. After a change the earlier secret is accepted for
// `overlap`, and stays the own one for half of it. Processes that read the new secret within that
// half, each at its own time, therefore accept each other throughout. Not thread-safe.
class SecretOverlap final {
 public:
  SecretOverlap(ClusterSecret secret, Duration overlap)
      : present_(std::move(secret)), overlap_(overlap) {}

  // Notes what the file says at the time `now`.
  void Set(const ClusterSecret& secret, Time now);
  // The secrets that hold at the time `now`.
  ClusterSecret At(Time now) const;

 private:
  ClusterSecret present_;
  std::optional<ClusterSecret> earlier_;
  Time changed_{};
  const Duration overlap_;
};

// How long a replaced secret holds, and how often a SecretFile looks for a new one.
struct SecretTimes {
  Duration overlap{};  // see SecretOverlap
  Duration look_every = FileWatch::kInterval;
};

// The file with the cluster's secret. A thread looks regularly whether the file has changed.
// When a changed file cannot be read, the earlier secret stays, and the log says so. Thread-safe.
class SecretFile final {
 public:
  // Errors of ClusterSecret::Load. `refusals` outlives the file.
  static StatusOr<std::unique_ptr<SecretFile>> Open(const std::string& path,
                                                    const SecretTimes& times,
                                                    Refusals& refusals);

  // The secrets that hold now.
  std::shared_ptr<const ClusterSecret> Get();

 private:
  SecretFile(ReloadedFile<ClusterSecret> file,
             const ClusterSecret& secret,
             const SecretTimes& times);

  ReloadedFile<ClusterSecret> file_;
  std::mutex mutex_;
  SecretOverlap overlap_;  // guarded by mutex_
  std::jthread watcher_;
};

}  // namespace baton
