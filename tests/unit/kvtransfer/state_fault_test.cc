#include "tests/conformance/state_fault.h"

namespace baton {
namespace {

INSTANTIATE_TEST_SUITE_P(Tcp,
                         StateFaultTest,
                         testing::ValuesIn(StateFaults("tcp")),
                         testing::PrintToStringParamName());
INSTANTIATE_TEST_SUITE_P(Shm,
                         StateFaultTest,
                         testing::ValuesIn(StateFaults("shm")),
                         testing::PrintToStringParamName());

INSTANTIATE_TEST_SUITE_P(Held,
                         StateFaultTest,
                         testing::ValuesIn(HeldStateFaults()),
                         testing::PrintToStringParamName());

}  // namespace
}  // namespace baton
