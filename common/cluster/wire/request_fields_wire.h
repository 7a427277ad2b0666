#pragma once

#include "common/base/status.h"
#include "common/cluster/request_fields.h"
#include "common/cluster/sampling_fields.h"

namespace baton::v1 {
class GenerateRequest;
class Sampling;
}  // namespace baton::v1
namespace baton::worker::v1 {
class Dispatch;
}  // namespace baton::worker::v1

// Moves the fields of kSamplingFields and kPassedFields between our types and the fields of the
// same names in protobuf messages. A message that lacks one stops the process at the first use;
// cluster_wire_test compares the tables with all messages.
namespace baton {

void SetSamplingFields(const SamplingParams& in, v1::Sampling& out);
// Absent values of `in` leave those of `out` as they are.
void ReadSamplingFields(const v1::Sampling& in, SamplingParams& out);

// Absent values stay absent.
void SetSamplingFields(const SamplingOverrides& in, v1::Sampling& out);
void ReadSamplingFields(const v1::Sampling& in, SamplingOverrides& out);

void SetPassedFields(const PassedOptions& in, worker::v1::Dispatch& out);
// InvalidArgument for a text that is longer than allowed.
Status ReadPassedFields(const worker::v1::Dispatch& in, PassedOptions& out);

// Reads what clients state, without a check.
void ReadStatedFields(const v1::GenerateRequest& in, PassedOptions& out);

}  // namespace baton
