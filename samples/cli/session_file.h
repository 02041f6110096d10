// Saved sessions as files of the program: --save and --resume.
#pragma once

#include <string>

#include "options.h"
#include "weir_cpp.h"

namespace weir_cli {

struct SavedFlags {
  std::string save;    // "": nowhere
  std::string resume;  // "": a new conversation
};

void add_saved_flags(CLI::App& app, SavedFlags& flags);

// Throws UsageError for a system message, which a resumed conversation has already.
void check_saved_flags(const SavedFlags& flags, const std::string& system);

// Both throw std::runtime_error naming the file. A file is written beside `path` and takes its place when it is
// complete, so that a failure leaves what was there. Readable by the user alone.
void save_session(weir_session* session, const std::string& path);
void resume_session(weir_session* session, const std::string& path);

}  // namespace weir_cli
