#pragma once

namespace CLI {
class App;
}

namespace baton {

// The default addresses that `baton up` serves on and that the other commands use.
constexpr const char* kDefaultServer = "127.0.0.1:7080";
constexpr const char* kDefaultAdmin = "127.0.0.1:7081";

// The tool `baton`: parses the command line and runs the subcommand. Returns the exit status: 0, 1
// after printing an error, or 2 for wrong usage.
int RunBaton(int argc, char** argv);

// Each function adds one subcommand of the tool `baton` to `app`. When the user chose the
// subcommand, it runs during app.parse() and stores the exit status: 0, or 1 after printing an
// error.
void AddUpCommand(CLI::App& app, int& exit_status);
void AddGenerateCommand(CLI::App& app, int& exit_status);
void AddChatCommand(CLI::App& app, int& exit_status);
void AddStatusCommand(CLI::App& app, int& exit_status);
void AddDrainCommand(CLI::App& app, int& exit_status);
// Exit status 1: the tokens differ; 2: an error.
void AddVerifyCommand(CLI::App& app, int& exit_status);
void AddKeyCommand(CLI::App& app, int& exit_status);
void AddModelCommand(CLI::App& app, int& exit_status);
void AddKernelsCommand(CLI::App& app, int& exit_status);
void AddHostCommand(CLI::App& app, int& exit_status);

}  // namespace baton
