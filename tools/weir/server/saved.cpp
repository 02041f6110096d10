// Conversations on the disk; see saved.h. NAME.weir is the session, NAME.json its title and name.
#include "server/saved.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "json_input.h"
#include "out_file.h"
#include "server/answer.h"
#include "session_file.h"

namespace weir_server {
namespace {

namespace fs = std::filesystem;
constexpr size_t kNameDigits = 32;

bool is_name(const std::string& name) {
  return name.size() == kNameDigits && name.find_first_not_of("0123456789abcdef") == std::string::npos;
}

Json read_notes(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  const Json notes = Json::parse(text, nullptr, false);
  return notes.is_object() ? notes : Json::object();
}

// The text at `key`; "" if there is none, as somebody may have changed the file.
std::string text_of(const Json& notes, const char* key) {
  const auto note = notes.find(key);
  return note != notes.end() && note->is_string() ? note->get<std::string>() : "";
}

int64_t number_of(const Json& notes, const char* key) {
  const auto note = notes.find(key);
  return note != notes.end() && note->is_number_integer() ? note->get<int64_t>() : 0;
}

}  // namespace

SavedFolder::SavedFolder(std::string path) : folder_(std::move(path)) {
  std::error_code error;
  fs::create_directories(folder_, error);
  if (error || !fs::is_directory(folder_))
    throw std::runtime_error("--save-dir " + folder_ + ": " + (error ? error.message() : "it is no folder"));
  if (::access(folder_.c_str(), W_OK | X_OK) != 0)
    throw std::runtime_error("--save-dir " + folder_ + ": it cannot be written to");
}

Json SavedFolder::list() const {
  Json all = Json::array();
  std::error_code error, walk_error;
  for (fs::directory_iterator entry(folder_, walk_error), end; !walk_error && entry != end;
       entry.increment(walk_error)) {
    const fs::path& path = entry->path();
    if (path.extension() != ".json" || !is_name(path.stem().string())) continue;
    fs::path session = path;
    session.replace_extension(".weir");
    const uintmax_t bytes = fs::file_size(session, error);
    if (error) continue;
    const Json notes = read_notes(path);
    all.push_back({{"name", path.stem().string()},
                   {"bytes", bytes},
                   {"tokens", number_of(notes, "tokens")},
                   {"created", number_of(notes, "created")},
                   {"title", text_of(notes, "title")}});
  }
  std::sort(all.begin(), all.end(), [](const Json& a, const Json& b) { return a["created"] > b["created"]; });
  return {{"saved", all}};
}

std::optional<std::string> SavedFolder::path_of(const std::string& name) const {
  if (!is_name(name)) return std::nullopt;
  std::string path = folder_ + "/" + name;
  std::error_code error;
  if (!fs::is_regular_file(path + ".weir", error)) return std::nullopt;
  return path;
}

std::string SavedFolder::save(Pool::Lease& lease, const std::string& conversation, const std::string& title) const {
  const std::string name = random_hex(kNameDigits / 2), path = folder_ + "/" + name;
  const Json notes = {{"title", title},
                      {"conversation", conversation},
                      {"tokens", weir_cli::session_stats(lease.session()).n_tokens},
                      {"created", static_cast<int64_t>(std::time(nullptr))}};
  weir_cli::OutFile session(path + ".weir", weir_cli::OutFile::kPrivate, "cannot save to");
  weir_cli::save_session(lease.session(), session);
  try {
    weir_cli::OutFile file(path + ".json", weir_cli::OutFile::kPrivate, "cannot save to");
    const std::string text = json_text(notes);
    file.write(text.data(), text.size());
    file.commit();
  } catch (...) {
    ::unlink((path + ".weir").c_str());
    throw;
  }
  return name;
}

bool SavedFolder::restore(Pool::Lease& lease, const std::string& name) const {
  const auto path = path_of(name);
  if (!path) return false;
  weir_cli::resume_session(lease.session(), *path + ".weir");
  lease.set_conversation(text_of(read_notes(*path + ".json"), "conversation"));
  return true;
}

bool SavedFolder::remove(const std::string& name) const {
  const auto path = path_of(name);
  if (!path) return false;
  ::unlink((*path + ".json").c_str());
  return ::unlink((*path + ".weir").c_str()) == 0;
}

}  // namespace weir_server
