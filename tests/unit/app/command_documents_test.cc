#include "common/app/command_documents.h"

#include <string>

#include <CLI/CLI.hpp>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace baton {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class CommandDocumentsTest : public ::testing::Test {
 protected:
  CommandDocumentsTest() {
    app_.option_defaults()->always_capture_default();
    CLI::App* model = app_.add_subcommand("model", "About models");
    CLI::App* inspect = model->add_subcommand("inspect", "Show\\one model");
    inspect->add_option("path", path_, ".gguf file")->required();
    inspect->add_option("--top-k", top_k_, "rows to show");
    inspect->add_flag("--secret", secret_, "of no interest")->group("");
  }

  std::string path_;
  int top_k_ = 40;
  bool secret_ = false;
  CLI::App app_{"A tool", "my-tool"};
};

TEST_F(CommandDocumentsTest, TheManualHasEachCommandAndFlagWithItsDefault) {
  const std::string page = ManPage(app_);
  EXPECT_THAT(
      page,
      AllOf(HasSubstr(".TH MY\\-TOOL 1"),
            HasSubstr("my\\-tool \\- A tool"),
            HasSubstr(".SS my\\-tool model inspect\n"),
            HasSubstr("\\fB\\-\\-top\\-k\\fR \\fIINT\\fR\nrows to show\n.br\nDefault: 40\n"),
            HasSubstr("\\fBpath\\fR")));
  EXPECT_THAT(page, Not(HasSubstr("secret")));
}

TEST_F(CommandDocumentsTest, TextThatRoffWouldReadAsACommandIsEscaped) {
  EXPECT_THAT(ManPage(app_), AllOf(HasSubstr("\n\\&.gguf file\n"), HasSubstr("Show\\eone model")));
}

TEST_F(CommandDocumentsTest, CompletionOffersWhatMayFollowEachCommand) {
  const std::string script = BashCompletion(app_);
  EXPECT_THAT(script,
              AllOf(HasSubstr("\"\") words=\"model --help \" ;;"),
                    HasSubstr("\" model\") words=\"inspect --help \" ;;"),
                    HasSubstr("\" model inspect\") words=\"--help --top-k \" ;;"),
                    HasSubstr("-F _my_tool my-tool")));
  EXPECT_THAT(script, Not(HasSubstr("secret")));
}

}  // namespace
}  // namespace baton
