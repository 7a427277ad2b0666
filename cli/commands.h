#pragma once

namespace CLI {
class App;
}

namespace baton {

// Where `baton up` serves and the other commands look, unless told otherwise.
constexpr const char* kDefaultServer = "127.0.0.1:7080";
constexpr const char* kDefaultAdmin = "127.0.0.1:7081";

// The tool `baton`: parses the command line, runs the subcommand. The exit status: 0, 1 after
// printing what went wrong, or the parser's for wrong usage.
int RunBaton(int argc, char** argv);

// Each adds one subcommand of the tool `baton` to `app`. When the user chose it, it runs during
// app.parse() and stores the exit status: 0, or 1 after printing what went wrong.
void AddUpCommand(CLI::App& app, int& exit_status);
void AddGenerateCommand(CLI::App& app, int& exit_status);
void AddChatCommand(CLI::App& app, int& exit_status);
void AddStatusCommand(CLI::App& app, int& exit_status);
void AddDrainCommand(CLI::App& app, int& exit_status);
void AddModelCommand(CLI::App& app, int& exit_status);

}  // namespace baton
