#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <future>
#include <thread>
#include <utility>

#include <gmock/gmock.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <gtest/gtest.h>

#include "common/app/child_process.h"
#include "common/base/check.h"
#include "proto/generation.grpc.pb.h"
#include "tests/support/temporary_folder.h"

namespace baton {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr auto kLimit = std::chrono::seconds(20);

// A router whose model repeats "tick " until the request is cancelled. It answers "count" with the
// number of messages in the chat.
class FakeRouter final : public v1::Generation::Service {
 public:
  FakeRouter() {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
  }
  ~FakeRouter() override { server_->Shutdown(std::chrono::system_clock::now()); }
  std::string address() const { return fmt::format("127.0.0.1:{}", port_); }
  // Waits until an answer was cancelled on the router's side; false after kLimit.
  bool AwaitCancelled() {
    return cancelled_.get_future().wait_for(kLimit) == std::future_status::ready;
  }

  grpc::Status ListModels(grpc::ServerContext*,
                          const v1::ListModelsRequest*,
                          v1::ListModelsResponse* response) override {
    response->add_models()->set_name("ticker");
    return grpc::Status::OK;
  }
  grpc::Status Generate(grpc::ServerContext* context,
                        const v1::GenerateRequest* request,
                        grpc::ServerWriter<v1::GenerateResponse>* writer) override {
    v1::GenerateResponse response;
    const auto& messages = request->chat().messages();
    if (messages.rbegin()->content() == "count") {
      response.set_text(fmt::format("{} messages", messages.size()));
      response.set_finish(v1::FINISH_REASON_STOP);
      writer->Write(response);
      return grpc::Status::OK;
    }
    response.set_text("tick ");
    while (!context->IsCancelled()) {
      writer->Write(response);
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    cancelled_.set_value();
    return grpc::Status::CANCELLED;
  }

 private:
  int port_ = 0;
  std::promise<void> cancelled_;
  std::unique_ptr<grpc::Server> server_;
};

// `baton chat` on a terminal of its own.
class TerminalChat final {
 public:
  explicit TerminalChat(const std::string& server) {
    const std::string home_setting = "BATON_HOME=" + home_.path();
    const std::string tool = BATON_BINARY_FOLDER "/baton";
    int terminal = -1;
    pid_ = ::forkpty(&terminal, nullptr, nullptr, nullptr);
    BATON_CHECK(pid_ >= 0, "a terminal of its own: {}; is /dev/pts there?", std::strerror(errno));
    if (pid_ == 0) {
      ::execl("/usr/bin/env",
              "env",
              home_setting.c_str(),
              "TERM=xterm",
              tool.c_str(),
              "chat",
              "--server",
              server.c_str(),
              nullptr);
      ::_exit(127);
    }
    terminal_.Reset(terminal);
  }
  ~TerminalChat() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }

  void Type(const std::string& keys) {
    const auto written = ::write(terminal_.get(), keys.data(), keys.size());
    EXPECT_EQ(written, static_cast<ssize_t>(keys.size()));
  }
  // Returns the output up to and including `marker`. When `marker` does not arrive in time, fails
  // the test and returns what arrived.
  std::string Expect(const std::string& marker) {
    const Time deadline = SteadyClock().Now() + kLimit;
    bool open = true;
    while (open && seen_.find(marker) == std::string::npos && SteadyClock().Now() < deadline) {
      open = TakeIn();
    }
    const size_t at = seen_.find(marker);
    EXPECT_NE(at, std::string::npos) << "no \"" << marker << "\" in: " << seen_;
    const size_t end = at == std::string::npos ? seen_.size() : at + marker.size();
    std::string text = seen_.substr(0, end);
    seen_.erase(0, end);
    return text;
  }
  // Types Ctrl-D at the prompt and expects that the program exits with status 0.
  void ExpectCtrlDEndsIt() {
    Type("\x04");
    const Time deadline = SteadyClock().Now() + kLimit;
    bool open = true;
    while (open && SteadyClock().Now() < deadline) open = TakeIn();
    if (open) ::kill(pid_, SIGKILL);
    int status = 0;
    ::waitpid(std::exchange(pid_, -1), &status, 0);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status << ": " << seen_;
  }

 private:
  // Waits up to 0.1 s for output. False when the program has closed its terminal.
  bool TakeIn() {
    pollfd waiting{terminal_.get(), POLLIN, 0};
    if (::poll(&waiting, 1, 100) <= 0) return true;
    char buffer[1024];
    const auto n = ::read(terminal_.get(), buffer, sizeof(buffer));
    if (n > 0) seen_.append(buffer, static_cast<size_t>(n));
    return n > 0;
  }

  const TemporaryFolder home_;
  pid_t pid_ = -1;
  UniqueFd terminal_;
  std::string seen_;
};

TEST(ChatTest, CtrlCCancelsTheAnswerAndNotTheProgram) {
  FakeRouter router;
  TerminalChat chat(router.address());
  EXPECT_THAT(chat.Expect("> "), HasSubstr("Talking to ticker"));
  chat.Type("hello\n");
  chat.Expect("tick tick");
  chat.Type("\x03");
  chat.Expect("(cancelled)");
  chat.Expect("> ");
  EXPECT_TRUE(router.AwaitCancelled());
  // Ctrl-C at the prompt drops the line; the arrow key brings the history back.
  chat.Type("half a li\x03");
  chat.Expect("> ");
  chat.Type("count\n");
  chat.Expect("3 messages");
  chat.Expect("> ");
  chat.Type("/reset\n");
  chat.Expect("forgotten");
  chat.Expect("> ");
  chat.Type("\x1b[A\x1b[A\n");
  chat.Expect("1 messages");
  chat.Expect("> ");
  chat.ExpectCtrlDEndsIt();
}

TEST(ChatTest, ReadsLinesWhenThereIsNoTerminal) {
  FakeRouter router;
  auto chat = ChildProcess::Start(
      {{"/bin/sh",
        "-c",
        fmt::format("printf 'count\\ncount\\n/exit\\ncount\\n' | {}/baton chat --server {}",
                    BATON_BINARY_FOLDER,
                    router.address())},
       ""});
  ASSERT_TRUE(chat.ok());
  const std::string output = (*chat)->ReadStdout(kLimit);
  EXPECT_EQ((*chat)->WaitExit(kLimit), 0);
  EXPECT_THAT(output,
              AllOf(HasSubstr("1 messages"),
                    HasSubstr("3 messages"),
                    Not(HasSubstr("5 messages")),
                    Not(HasSubstr("> "))));
}

TEST(ToolTest, SaysWhatToStartWhenNobodyAnswers) {
  for (const char* command :
       {"generate hi --server", "chat --server", "status --admin", "drain w --admin"}) {
    auto tool = ChildProcess::Start(
        {{"/bin/sh",
          "-c",
          fmt::format("{}/baton {} 127.0.0.1:1 2>&1", BATON_BINARY_FOLDER, command)},
         ""});
    ASSERT_TRUE(tool.ok());
    const std::string output = (*tool)->ReadStdout(kLimit);
    EXPECT_EQ((*tool)->WaitExit(kLimit), 1) << command;
    EXPECT_THAT(output,
                AllOf(HasSubstr("no router answers at 127.0.0.1:1"), HasSubstr("baton up")));
  }
}

TEST(ToolTest, WrongUsageExitsWith2) {
  for (const char* command : {"", "frob", "generate", "up --prefill many", "model inspect"}) {
    auto tool = ChildProcess::Start(
        {{"/bin/sh", "-c", fmt::format("{}/baton {} 2>/dev/null", BATON_BINARY_FOLDER, command)},
         ""});
    ASSERT_TRUE(tool.ok());
    EXPECT_EQ((*tool)->WaitExit(kLimit), 2) << command;
  }
}

}  // namespace
}  // namespace baton
