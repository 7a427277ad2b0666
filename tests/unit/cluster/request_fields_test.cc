#include <string>
#include <variant>

#include <gmock/gmock.h>
#include <google/protobuf/message.h>

#include "common/cluster/wire/request_fields_wire.h"
#include "proto/generation.pb.h"
#include "proto/worker.pb.h"

namespace baton {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using testing::HasSubstr;

void ExpectField(const Descriptor& type, std::string_view name, FieldDescriptor::CppType wanted) {
  const FieldDescriptor* const field = type.FindFieldByName(std::string(name));
  ASSERT_NE(field, nullptr) << type.full_name() << " has no field " << name;
  EXPECT_EQ(field->cpp_type(), wanted) << field->full_name();
  EXPECT_FALSE(field->is_repeated()) << field->full_name();
}

FieldDescriptor::CppType TypeOf(const PassedField& field) {
  return std::holds_alternative<int32_t PassedOptions::*>(field.value)
             ? FieldDescriptor::CPPTYPE_INT32
             : FieldDescriptor::CPPTYPE_STRING;
}

TEST(RequestFieldsTest, TheMessagesHaveTheFieldsOfTheTables) {
  for (const SamplingField& field : kSamplingFields) {
    ExpectField(*v1::Sampling::descriptor(), field.name, FieldDescriptor::CPPTYPE_FLOAT);
    EXPECT_TRUE(
        v1::Sampling::descriptor()->FindFieldByName(std::string(field.name))->has_presence())
        << field.name;
  }
  for (const PassedField& field : kPassedFields) {
    ExpectField(*worker::v1::Dispatch::descriptor(), field.name, TypeOf(field));
    if (field.stated) {
      ExpectField(*v1::GenerateRequest::descriptor(), field.name, TypeOf(field));
    }
  }
}

TEST(RequestFieldsTest, AbsentParametersStayAbsent) {
  SamplingOverrides given;
  given.min_p = 0.25F;
  given.presence_penalty = 0;
  v1::Sampling message;
  SetSamplingFields(given, message);
  EXPECT_EQ(message.ShortDebugString(), "min_p: 0.25 presence_penalty: 0");
  SamplingOverrides read;
  ReadSamplingFields(message, read);
  for (const SamplingField& field : kSamplingFields) {
    EXPECT_EQ(read.*field.override_value, given.*field.override_value) << field.name;
  }
  SamplingParams params;
  params.min_p = 0.5F;
  params.top_p = 0.5F;
  ReadSamplingFields(message, params);
  EXPECT_EQ(params.min_p, 0.25F);
  EXPECT_EQ(params.top_p, 0.5F);
}

TEST(RequestFieldsTest, ClientsStateOnlyWhatTheRouterDoesNotMake) {
  v1::GenerateRequest message;
  message.set_priority(-3);
  message.set_cache_salt("tenant");
  message.mutable_grammar()->set_regex("a");
  PassedOptions read;
  ReadStatedFields(message, read);
  EXPECT_EQ(read, (PassedOptions{.priority = -3, .cache_salt = "tenant", .grammar = ""}));
}

TEST(RequestFieldsTest, TextsAreBounded) {
  for (const PassedField& field : kPassedFields) {
    if (TypeOf(field) != FieldDescriptor::CPPTYPE_STRING) continue;
    worker::v1::Dispatch message;
    const FieldDescriptor* const text =
        message.GetDescriptor()->FindFieldByName(std::string(field.name));
    PassedOptions read;
    message.GetReflection()->SetString(&message, text, std::string(field.max_bytes, 'x'));
    EXPECT_TRUE(ReadPassedFields(message, read).ok()) << field.name;
    message.GetReflection()->SetString(&message, text, std::string(field.max_bytes + 1, 'x'));
    EXPECT_THAT(std::string(Message(ReadPassedFields(message, read))),
                HasSubstr(fmt::format("{} has {} bytes", field.name, field.max_bytes + 1)));
  }
}

}  // namespace
}  // namespace baton
