#include "common/security/certificate_watch.h"

#include <openssl/pem.h>
#include <openssl/x509.h>

#include <algorithm>
#include <condition_variable>
#include <ctime>
#include <memory>
#include <mutex>
#include <utility>

#include "common/base/free_with.h"
#include "common/base/mapped_file.h"
#include "common/base/thread.h"
#include "common/log/log.h"
#include "common/security/file_watch.h"

namespace baton {
namespace {

using Bio = std::unique_ptr<BIO, FreeWith<BIO_free>>;
using Certificate = std::unique_ptr<X509, FreeWith<X509_free>>;

constexpr int64_t kSecondsOfDay = int64_t{24} * 3600;
constexpr int64_t kWarnDays = 14;
constexpr size_t kMaxPemBytes = size_t{1} << 20;

const Logger kLog("security");

int64_t SecondsOf(const ASN1_TIME* time) {
  std::tm utc{};
  return ASN1_TIME_to_tm(time, &utc) == 1 ? int64_t{::timegm(&utc)} : 0;
}

std::string DateOf(int64_t seconds) {
  const std::time_t time = seconds;
  std::tm utc{};
  ::gmtime_r(&time, &utc);
  char text[64];
  return {text, std::strftime(text, sizeof(text), "%Y-%m-%d %H:%M:%S UTC", &utc)};
}

std::string WarningOf(const X509& certificate, int64_t now_s) {
  const int64_t begin = SecondsOf(X509_get0_notBefore(&certificate));
  const int64_t end = SecondsOf(X509_get0_notAfter(&certificate));
  if (end <= now_s) return fmt::format("has expired on {}", DateOf(end));
  if (begin > now_s) return fmt::format("is not valid before {}", DateOf(begin));
  if (end - now_s >= kWarnDays * kSecondsOfDay) return "";
  return fmt::format("expires on {}, in {:.1f} days",
                     DateOf(end),
                     static_cast<double>(end - now_s) / kSecondsOfDay);
}

void Warn(const std::string& path) {
  for (const std::string& warning : CertificateWarnings(path, std::time(nullptr))) {
    kLog.Warning("{}", warning);
  }
}

}  // namespace

std::vector<std::string> CertificateWarnings(const std::string& path, int64_t now_s) {
  std::vector<std::string> warnings;
  const StatusOr<std::string> pem = ReadFile(path, kMaxPemBytes);
  if (!pem.ok()) return warnings;
  const Bio bio(BIO_new_mem_buf(pem->data(), static_cast<int>(pem->size())));
  for (int number = 1;; ++number) {
    const Certificate certificate(PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr));
    if (certificate == nullptr) return warnings;
    const std::string warning = WarningOf(*certificate, now_s);
    if (warning.empty()) continue;
    warnings.push_back(fmt::format("certificate {} of the file '{}' {}", number, path, warning));
  }
}

CertificateWatch::CertificateWatch(std::vector<std::string> files, Duration interval)
    : files_(std::move(files)) {
  std::ranges::sort(files_);
  files_.erase(std::unique(files_.begin(), files_.end()), files_.end());
  std::erase(files_, "");
  if (files_.empty()) return;
  thread_ = StartThread("certificates",
                        [this, interval](const std::stop_token& stop) { Run(stop, interval); });
}

void CertificateWatch::Run(const std::stop_token& stop, Duration interval) {
  std::vector<FileWatch> watches(files_.begin(), files_.end());
  std::mutex mutex;
  std::condition_variable_any wake;
  std::unique_lock lock(mutex);
  Time all_at{};
  while (!stop.stop_requested()) {
    const Time now = SteadyClock().Now();
    const bool all = now >= all_at;
    if (all) all_at = now + std::chrono::hours(24);
    for (FileWatch& watch : watches) {
      if (watch.Changed(now) || all) Warn(watch.path());
    }
    wake.wait_for(lock, stop, interval, [] { return false; });
  }
}

}  // namespace baton
