#include "cli/commands.h"

int main(int argc, char** argv) {
  return baton::RunBaton(argc, argv);
}
