#include "tests/clients/run_script.h"

#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>

#include <gtest/gtest.h>

namespace baton {

void RunScript(const std::string& script, const std::vector<std::string>& arguments) {
  ASSERT_TRUE(std::filesystem::exists(std::string(BATON_TEST_CLIENTS) + "/openai"))
      << "the Python packages of the clients are missing in '" << BATON_TEST_CLIENTS
      << "'; `./dev clients` installs them from PyPI";
  const std::string path = "tests/clients/" + script;
  const std::string packages = std::string("PYTHONPATH=") + BATON_TEST_CLIENTS;
  std::vector<std::string> words = {"env", packages, "PYTHONDONTWRITEBYTECODE=1", "python3", path};
  words.insert(words.end(), arguments.begin(), arguments.end());
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    std::vector<char*> argv;
    for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
    argv.push_back(nullptr);
    ::execvp("env", argv.data());
    ::_exit(127);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0) << script << " failed; its output is above";
}

}  // namespace baton
