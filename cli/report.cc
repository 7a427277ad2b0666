#include "cli/report.h"

#include <cstdio>

namespace baton {

int Report(const Status& status) {
  if (status.ok()) return 0;
  fmt::print(stderr, "baton: {}\n", Message(status));
  return 1;
}

}  // namespace baton
