// Saved sessions as files of the program: --save and --resume.
#pragma once

#include <memory>
#include <string>

#include "options.h"
#include "out_file.h"
#include "weir_cpp.h"

namespace weir_cli {

struct SavedFlags {
  std::string save;    // "": nowhere
  std::string resume;  // "": a new conversation
};

void add_saved_flags(CLI::App& app, SavedFlags& flags);

// Throws UsageError for a system message, which a resumed conversation has already.
void check_saved_flags(const SavedFlags& flags, const std::string& system);

// The file of --save, tried before the first token; nullptr without one. Throws std::runtime_error naming the file.
std::unique_ptr<OutFile> open_save_file(const SavedFlags& flags);

// Both throw std::runtime_error naming the file.
void save_session(weir_session* session, OutFile& file);
void resume_session(weir_session* session, const std::string& path);

}  // namespace weir_cli
