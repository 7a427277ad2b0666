#include "tests/conformance/process_fault.h"

namespace baton {
namespace {

INSTANTIATE_TEST_SUITE_P(Faults,
                         ProcessFaultTest,
                         testing::Values(ProcessFault{{"shm", "cpu"}, "cpu", SIGKILL},
                                         ProcessFault{{"tcp", "cpu"}, "cpu", SIGKILL},
                                         ProcessFault{{"cuda_ipc", "fake"}, "fake", SIGKILL, true},
                                         ProcessFault{{"nccl", "fake"}, "fake", SIGKILL},
                                         ProcessFault{{"shm", "cpu"}, "cpu", SIGSTOP},
                                         ProcessFault{{"tcp", "cpu"}, "cpu", SIGSTOP},
                                         ProcessFault{{"cuda_ipc", "fake"}, "fake", SIGSTOP, true},
                                         ProcessFault{{"nccl", "fake"}, "fake", SIGSTOP}),
                         testing::PrintToStringParamName());

INSTANTIATE_TEST_SUITE_P(Faults,
                         StoppedSenderTest,
                         testing::Values(ProcessFault{{"cuda_ipc", "fake"}, "fake", SIGSTOP, true}),
                         testing::PrintToStringParamName());

}  // namespace
}  // namespace baton
