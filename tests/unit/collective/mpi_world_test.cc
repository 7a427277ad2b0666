#include "common/collective/mpi_world.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace baton {
namespace {

TEST(OpenMpiWorldTest, AMissingLibraryIsAnErrorThatNamesThePackages) {
  MpiOptions options;
  options.library = "/nonexistent/libbaton_mpi.so";
  const auto world = OpenMpiWorld(options);
  EXPECT_EQ(world.status().code(), StatusCode::kNotFound);
  EXPECT_EQ(Message(world.status()),
            "Baton's MPI library is not there: looked for /nonexistent/libbaton_mpi.so; a group of "
            "ranks needs the Debian packages openmpi-bin and libopenmpi3 to run, and "
            "libopenmpi-dev when Baton is built");
}

TEST(OpenMpiWorldTest, AFileThatIsNotALibraryIsNamed) {
  MpiOptions options;
  options.library = "/etc/passwd";
  const auto world = OpenMpiWorld(options);
  EXPECT_EQ(world.status().code(), StatusCode::kNotFound);
  EXPECT_THAT(Message(world.status()),
              testing::HasSubstr("Baton's MPI library does not load: /etc/passwd"));
}

}  // namespace
}  // namespace baton
