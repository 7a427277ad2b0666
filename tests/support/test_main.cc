// The main function of all tests. A test runs in the root of its tree, wherever it is started. So
// the paths of tests/data and of the programs are relative, the same in every tree, and a compiler
// cache serves them all.
#include <filesystem>

#include <gmock/gmock.h>

int main(int argc, char** argv) {
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe");
  // Before gtest asks for the parameters of tests: some are read from files.
  std::filesystem::current_path(program.parent_path() / BATON_ROOT_FROM_TESTS);
  testing::InitGoogleMock(&argc, argv);
  return RUN_ALL_TESTS();
}
