#include "common/cluster/wire/request_fields_wire.h"

#include <array>
#include <string>
#include <variant>

#include <google/protobuf/message.h>

#include "common/base/check.h"
#include "proto/generation.pb.h"
#include "proto/worker.pb.h"

namespace baton {
namespace {

namespace pb = google::protobuf;

// Calls f(row, field) for each row of the table `kTable`, with the field of its name in the message
// type M; null: M has none. The fields are looked up once, because a look-up takes longer than a
// field's copy.
template <class M, const auto& kTable, class F>
void ForEachField(F f) {
  static const auto fields = [] {
    std::array<const pb::FieldDescriptor*, std::size(kTable)> found;
    for (size_t i = 0; i < found.size(); ++i) {
      found[i] = M::descriptor()->FindFieldByName(std::string(kTable[i].name));
    }
    return found;
  }();
  for (size_t i = 0; i < fields.size(); ++i) f(kTable[i], fields[i]);
}

void Set(pb::Message& out, const pb::FieldDescriptor* field, float value) {
  BATON_CHECK(field != nullptr, "{} lacks a field", out.GetTypeName());
  out.GetReflection()->SetFloat(&out, field, value);
}
void Set(pb::Message& out, const pb::FieldDescriptor* field, int32_t value) {
  BATON_CHECK(field != nullptr, "{} lacks a field", out.GetTypeName());
  out.GetReflection()->SetInt32(&out, field, value);
}
void Set(pb::Message& out, const pb::FieldDescriptor* field, const std::string& value) {
  BATON_CHECK(field != nullptr, "{} lacks a field", out.GetTypeName());
  out.GetReflection()->SetString(&out, field, value);
}

void Read(const pb::Message& in, const pb::FieldDescriptor* field, float& value) {
  BATON_CHECK(field != nullptr, "{} lacks a field", in.GetTypeName());
  value = in.GetReflection()->GetFloat(in, field);
}
void Read(const pb::Message& in, const pb::FieldDescriptor* field, int32_t& value) {
  BATON_CHECK(field != nullptr, "{} lacks a field", in.GetTypeName());
  value = in.GetReflection()->GetInt32(in, field);
}
void Read(const pb::Message& in, const pb::FieldDescriptor* field, std::string& value) {
  BATON_CHECK(field != nullptr, "{} lacks a field", in.GetTypeName());
  value = in.GetReflection()->GetString(in, field);
}

}  // namespace

void SetSamplingFields(const SamplingParams& in, v1::Sampling& out) {
  ForEachField<v1::Sampling, kSamplingFields>(
      [&](const SamplingField& row, const pb::FieldDescriptor* field) {
        Set(out, field, in.*row.value);
      });
}

void ReadSamplingFields(const v1::Sampling& in, SamplingParams& out) {
  ForEachField<v1::Sampling, kSamplingFields>(
      [&](const SamplingField& row, const pb::FieldDescriptor* field) {
        if (in.GetReflection()->HasField(in, field)) Read(in, field, out.*row.value);
      });
}

void SetSamplingFields(const SamplingOverrides& in, v1::Sampling& out) {
  ForEachField<v1::Sampling, kSamplingFields>(
      [&](const SamplingField& row, const pb::FieldDescriptor* field) {
        const std::optional<float>& value = in.*row.override_value;
        if (value.has_value()) Set(out, field, *value);
      });
}

void ReadSamplingFields(const v1::Sampling& in, SamplingOverrides& out) {
  ForEachField<v1::Sampling, kSamplingFields>(
      [&](const SamplingField& row, const pb::FieldDescriptor* field) {
        if (!in.GetReflection()->HasField(in, field)) return;
        Read(in, field, (out.*row.override_value).emplace());
      });
}

void SetPassedFields(const PassedOptions& in, worker::v1::Dispatch& out) {
  ForEachField<worker::v1::Dispatch, kPassedFields>(
      [&](const PassedField& row, const pb::FieldDescriptor* field) {
        std::visit([&](const auto member) { Set(out, field, in.*member); }, row.value);
      });
}

Status ReadPassedFields(const worker::v1::Dispatch& in, PassedOptions& out) {
  Status status;
  ForEachField<worker::v1::Dispatch, kPassedFields>([&](const PassedField& row,
                                                        const pb::FieldDescriptor* field) {
    std::visit([&](const auto member) { Read(in, field, out.*member); }, row.value);
    const auto* const text = std::get_if<std::string PassedOptions::*>(&row.value);
    if (text == nullptr || (out.*(*text)).size() <= row.max_bytes) return;
    status = InvalidArgument(
        "{} has {} bytes; at most {} are allowed", row.name, (out.*(*text)).size(), row.max_bytes);
  });
  return status;
}

void ReadStatedFields(const v1::GenerateRequest& in, PassedOptions& out) {
  ForEachField<v1::GenerateRequest, kPassedFields>(
      [&](const PassedField& row, const pb::FieldDescriptor* field) {
        if (!row.stated) return;
        std::visit([&](const auto member) { Read(in, field, out.*member); }, row.value);
      });
}

}  // namespace baton
