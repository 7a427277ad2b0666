#include "common/security/certificate_watch.h"

#include <ctime>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/base/mapped_file.h"
#include "tests/support/captured_stderr.h"
#include "tests/support/test_certificates.h"

namespace baton {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr long kDay = 24 * 3600;

std::string DateIn(long seconds) {
  const std::time_t time = std::time(nullptr) + seconds;
  std::tm utc{};
  ::gmtime_r(&time, &utc);
  char text[16];
  return {text, std::strftime(text, sizeof(text), "%Y-%m-%d", &utc)};
}

TEST(CertificateWarnings, NameTheFileAndTheDate) {
  const TestAuthority authority;
  const auto warnings = [&](long valid_seconds, long at = 0) {
    const CertificateFiles files = authority.Make({.valid_seconds = valid_seconds});
    return CertificateWarnings(files.certificate, std::time(nullptr) + at);
  };
  EXPECT_THAT(warnings(15 * kDay), IsEmpty());
  EXPECT_THAT(warnings(13 * kDay + 60),
              ElementsAre(AllOf(HasSubstr("leaf"),
                                HasSubstr("expires on " + DateIn(13 * kDay + 60)),
                                HasSubstr("in 13.0 days"))));
  EXPECT_THAT(warnings(20 * kDay, 7 * kDay),
              ElementsAre(HasSubstr("expires on " + DateIn(20 * kDay))));
  EXPECT_THAT(warnings(2 * kDay, 3 * kDay),
              ElementsAre(HasSubstr("has expired on " + DateIn(2 * kDay))));
  EXPECT_THAT(warnings(20 * kDay, -30 * kDay), ElementsAre(HasSubstr("is not valid before ")));
}

TEST(CertificateWarnings, EachCertificateOfAFileIsJudged) {
  const TestAuthority authority;
  const TemporaryFolder folder;
  std::string chain;
  for (const long seconds : {30 * kDay, 3 * kDay}) {
    chain += ReadFile(authority.Make({.valid_seconds = seconds}).certificate).value();
  }
  const std::string path = folder.Write("chain", chain);
  EXPECT_THAT(CertificateWarnings(path, std::time(nullptr)),
              ElementsAre(HasSubstr("certificate 2 of the file '" + path + "' expires on ")));
  EXPECT_THAT(CertificateWarnings("/no/such/file", 0), IsEmpty());
  EXPECT_THAT(CertificateWarnings(folder.Write("text", "no certificate"), 0), IsEmpty());
}

TEST(CertificateWatch, WarnsAgainWhenAFileHasChanged) {
  const TestAuthority authority;
  const CertificateFiles files = authority.Make({.valid_seconds = 30 * kDay});
  const CapturedStderr log;
  const CertificateWatch watch({files.certificate, "", files.certificate},
                               std::chrono::milliseconds(20));
  authority.Make({.valid_seconds = 2 * kDay});
  const std::string warning = "'" + files.certificate + "' expires on " + DateIn(2 * kDay);
  const Time deadline = SteadyClock().Now() + std::chrono::seconds(30);
  while (log.Text().find(warning) == std::string::npos && SteadyClock().Now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  EXPECT_THAT(log.Text(), HasSubstr(warning));
}

}  // namespace
}  // namespace baton
