#include "common/rpc/reflection_service.h"

#include <set>
#include <string>
#include <utility>
#include <vector>

#include <google/protobuf/descriptor.h>
#include <google/protobuf/descriptor.pb.h>
#include <grpcpp/impl/server_builder_plugin.h>
#include <grpcpp/impl/server_initializer.h>
#include <grpcpp/server_builder.h>

#include "common/base/status.h"
#include "proto/reflection.grpc.pb.h"

namespace baton {
namespace {

namespace v1 = grpc::reflection::v1;
using google::protobuf::Descriptor;
using google::protobuf::DescriptorPool;
using google::protobuf::FieldDescriptor;
using google::protobuf::FileDescriptor;

const DescriptorPool& Pool() {
  return *DescriptorPool::generated_pool();
}

void AddFile(const FileDescriptor& file,
             std::set<std::string>& seen,
             v1::FileDescriptorResponse& out) {
  if (!seen.insert(file.name()).second) return;
  google::protobuf::FileDescriptorProto proto;
  file.CopyTo(&proto);
  out.add_file_descriptor_proto(proto.SerializeAsString());
  for (int i = 0; i < file.dependency_count(); ++i) AddFile(*file.dependency(i), seen, out);
}

Status Found(const FileDescriptor* file,
             const std::string& what,
             v1::ServerReflectionResponse& out) {
  if (file == nullptr) return MakeStatus(StatusCode::kNotFound, "{} is not known here", what);
  std::set<std::string> seen;
  AddFile(*file, seen, *out.mutable_file_descriptor_response());
  return OkStatus();
}

const FileDescriptor* FileOf(const v1::ExtensionRequest& wanted) {
  const Descriptor* const type = Pool().FindMessageTypeByName(wanted.containing_type());
  if (type == nullptr) return nullptr;
  const FieldDescriptor* const field =
      Pool().FindExtensionByNumber(type, wanted.extension_number());
  return field == nullptr ? nullptr : field->file();
}

Status ListExtensions(const std::string& name, v1::ExtensionNumberResponse& out) {
  const Descriptor* const type = Pool().FindMessageTypeByName(name);
  if (type == nullptr) return MakeStatus(StatusCode::kNotFound, "{} is not known here", name);
  std::vector<const FieldDescriptor*> extensions;
  Pool().FindAllExtensions(type, &extensions);
  out.set_base_type_name(name);
  for (const FieldDescriptor* field : extensions) out.add_extension_number(field->number());
  return OkStatus();
}

Status Fill(const std::vector<std::string>& services,
            const v1::ServerReflectionRequest& request,
            v1::ServerReflectionResponse& out) {
  using Request = v1::ServerReflectionRequest;
  switch (request.message_request_case()) {
    case Request::kListServices:
      for (const std::string& name : services) {
        out.mutable_list_services_response()->add_service()->set_name(name);
      }
      return OkStatus();
    case Request::kFileByFilename:
      return Found(
          Pool().FindFileByName(request.file_by_filename()), request.file_by_filename(), out);
    case Request::kFileContainingSymbol:
      return Found(Pool().FindFileContainingSymbol(request.file_containing_symbol()),
                   request.file_containing_symbol(),
                   out);
    case Request::kFileContainingExtension:
      return Found(FileOf(request.file_containing_extension()), "the extension", out);
    case Request::kAllExtensionNumbersOfType:
      return ListExtensions(request.all_extension_numbers_of_type(),
                            *out.mutable_all_extension_numbers_response());
    case Request::MESSAGE_REQUEST_NOT_SET:
      break;
  }
  return InvalidArgument("the request asks for nothing; set one member of message_request");
}

// One client's stream: answers each request before it reads the next. Deletes itself.
class ReflectionStream final
    : public grpc::ServerBidiReactor<v1::ServerReflectionRequest, v1::ServerReflectionResponse> {
 public:
  explicit ReflectionStream(const std::vector<std::string>& services) : services_(services) {
    StartRead(&request_);
  }

  void OnReadDone(bool ok) override {
    if (!ok) return Finish(grpc::Status::OK);
    response_.Clear();
    response_.set_valid_host(request_.host());
    *response_.mutable_original_request() = request_;
    if (const Status status = Fill(services_, request_, response_); !status.ok()) {
      v1::ErrorResponse& error = *response_.mutable_error_response();
      error.set_error_code(static_cast<int32_t>(status.code()));
      error.set_error_message(std::string(Message(status)));
    }
    StartWrite(&response_);
  }
  void OnWriteDone(bool ok) override {
    if (!ok) return Finish(grpc::Status::OK);
    StartRead(&request_);
  }
  void OnDone() override { delete this; }

 private:
  const std::vector<std::string>& services_;
  v1::ServerReflectionRequest request_;
  v1::ServerReflectionResponse response_;
};

class ReflectionService final : public v1::ServerReflection::CallbackService {
 public:
  void SetServices(std::vector<std::string> names) { services_ = std::move(names); }
  grpc::ServerBidiReactor<v1::ServerReflectionRequest, v1::ServerReflectionResponse>*
  ServerReflectionInfo(grpc::CallbackServerContext*) override {
    return new ReflectionStream(services_);
  }

 private:
  std::vector<std::string> services_;
};

// gRPC tells a plugin the names of a server's services.
class ReflectionPlugin final : public grpc::ServerBuilderPlugin {
 public:
  std::string name() override { return "baton.reflection.v1"; }
  void InitServer(grpc::ServerInitializer* server) override { server->RegisterService(service_); }
  void Finish(grpc::ServerInitializer* server) override {
    service_->SetServices(*server->GetServiceList());
  }
  void ChangeArguments(const std::string&, void*) override {}
  bool has_sync_methods() const override { return false; }
  bool has_async_methods() const override { return false; }

 private:
  const std::shared_ptr<ReflectionService> service_ = std::make_shared<ReflectionService>();
};

}  // namespace

void EnableReflection() {
  static const bool added = [] {
    grpc::ServerBuilder::InternalAddPluginFactory(
        [] { return std::unique_ptr<grpc::ServerBuilderPlugin>(new ReflectionPlugin()); });
    return true;
  }();
  static_cast<void>(added);
}

}  // namespace baton
