#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "common/base/status.h"
#include "kvtransfer/transport.h"

namespace baton {

struct SoakTransport {
  std::string name;
  // As KvTransferOptions::make_transport.
  std::function<StatusOr<std::unique_ptr<Transport>>(std::string_view)> make;
  // How many objects of each kind its devices have; empty: it has no devices.
  std::function<std::vector<size_t>()> objects;
  bool states = false;  // the layers of the model have states in place of windows
};

// Thousands of hand-offs, many at a time, which either end aborts at random points. Afterwards no
// block, session, file descriptor, object of a device or memory is left over.
class SoakTest : public testing::TestWithParam<SoakTransport> {
 protected:
  void Run(int handoffs);
};

}  // namespace baton
