#include "common/security/secret_file.h"

#include <condition_variable>
#include <utility>

#include "common/base/thread.h"

namespace baton {

void SecretOverlap::Set(const ClusterSecret& secret, Time now) {
  if (secret == present_) return;
  earlier_ = std::exchange(present_, secret);
  changed_ = now;
}

ClusterSecret SecretOverlap::At(Time now) const {
  if (!earlier_.has_value() || now - changed_ >= overlap_) return present_;
  return present_.With(*earlier_, /*proves_earlier=*/now - changed_ < overlap_ / 2);
}

StatusOr<std::unique_ptr<SecretFile>> SecretFile::Open(const std::string& path,
                                                       const SecretTimes& times,
                                                       Refusals& refusals) {
  BATON_ASSIGN_OR_RETURN(auto file,
                         ReloadedFile<ClusterSecret>::Open(
                             FileWatch(path, times.look_every), &ClusterSecret::Load, refusals));
  const std::shared_ptr<const ClusterSecret> secret = file.Get();
  return std::unique_ptr<SecretFile>(new SecretFile(std::move(file), *secret, times));
}

SecretFile::SecretFile(ReloadedFile<ClusterSecret> file,
                       const ClusterSecret& secret,
                       const SecretTimes& times)
    : file_(std::move(file)), overlap_(secret, times.overlap) {
  watcher_ =
      StartThread("secret-watch", [this, every = times.look_every](const std::stop_token& stop) {
        std::mutex mutex;
        std::condition_variable_any stopped;
        std::unique_lock lock(mutex);
        while (!stopped.wait_for(lock, stop, every, [&] { return stop.stop_requested(); })) Get();
      });
}

std::shared_ptr<const ClusterSecret> SecretFile::Get() {
  const std::shared_ptr<const ClusterSecret> read = file_.Get();
  const Time now = SteadyClock().Now();
  std::lock_guard lock(mutex_);
  overlap_.Set(*read, now);
  return std::make_shared<const ClusterSecret>(overlap_.At(now));
}

}  // namespace baton
