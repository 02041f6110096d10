// The results file; see eval_results.h.
#include "eval_results.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <utility>

#include "conversation.h"

namespace weir_cli {
namespace {

using nlohmann::ordered_json;

constexpr char kMagicKey[] = "weir_eval";
// Version of the file's lines; raised when their meaning changes. 2: facts and hubs never ask for a given value, so
// that some of their problems are others than those of the same id before.
constexpr int kFormat = 2;

[[noreturn]] void fail_with_errno(const std::string& path, const char* what) {
  throw std::runtime_error(path + ": cannot " + what + ": " + std::strerror(errno));
}

// Whether a line has what a run is found again by.
bool names_a_run(const ordered_json& line) {
  for (const char* key : {"family", "id", "policy"}) {
    if (!line.contains(key) || !line[key].is_string()) return false;
  }
  return line.contains("budget") && line["budget"].is_number_unsigned() && line.contains("refused") &&
         line["refused"].is_boolean();
}

struct FileContent {
  bool is_empty = true;  // not even a whole header line
  ordered_json header;
  std::vector<ordered_json> lines;
  size_t n_whole_bytes = 0;  // up to the last line break
};

ordered_json parse_line(const std::string& path, size_t number, const std::string& text) {
  ordered_json line = ordered_json::parse(text, nullptr, false);
  if (!line.is_object()) throw std::runtime_error(path + ":" + std::to_string(number) + ": not a JSON object");
  return line;
}

FileContent read_content(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) fail_with_errno(path, "open");
  std::ostringstream all;
  all << file.rdbuf();
  const std::string text = all.str();
  FileContent content;
  size_t number = 0;
  for (size_t end; (end = text.find('\n', content.n_whole_bytes)) != std::string::npos;
       content.n_whole_bytes = end + 1) {
    ordered_json line = parse_line(path, ++number, text.substr(content.n_whole_bytes, end - content.n_whole_bytes));
    if (!content.is_empty) {
      if (!names_a_run(line)) {
        throw std::runtime_error(path + ":" + std::to_string(number) +
                                 ": a run needs \"family\", \"id\", \"policy\", \"budget\" and \"refused\"");
      }
      content.lines.push_back(std::move(line));
    } else if (line.contains(kMagicKey)) {
      content.header = std::move(line);
      content.is_empty = false;
    } else {
      throw std::runtime_error(path + ": not a results file of weir eval: its first line has no \"" + kMagicKey + "\"");
    }
  }
  return content;
}

// One difference is enough to tell.
void compare_headers(const std::string& path, const ordered_json& found, const ordered_json& wanted) {
  for (const auto& [key, value] : wanted.items()) {
    const ordered_json there = found.value(key, ordered_json());
    if (there == value) continue;
    throw std::runtime_error(path + ": made with " + key + " " + there.dump() + ", this command has " + value.dump() +
                             "; choose another --out, or delete the file");
  }
}

}  // namespace

ordered_json run_header(const std::string& mode, const std::string& model_path, uint64_t model_bytes) {
  ordered_json header;
  header[kMagicKey] = kFormat;
  header["mode"] = mode;
  header["version"] = weir_version_string();
  header["model"] = std::filesystem::path(model_path).filename().string();
  header["model_bytes"] = model_bytes;
  return header;
}

ordered_json results_header(const EvalSettings& settings, const std::string& mode, const std::string& model_path,
                            uint64_t model_bytes) {
  ordered_json header = run_header(mode, model_path, model_bytes);
  header["seed"] = settings.seed;
  header["steps"] = settings.steps;
  header["lag"] = settings.lag;
  header["every"] = settings.every;
  header["passkey_tokens"] = settings.passkey_tokens;
  header["question_as_decode"] = settings.question_as_decode;
  header["max_factor"] = settings.max_factor;
  header["context"] = settings.context;
  header["stop_at_error"] = settings.stop_at_error;
  return header;
}

std::string run_key(const std::string& id, const std::string& label, uint32_t budget) {
  return id + "|" + label + "|" + std::to_string(budget);
}

std::string run_key(const ordered_json& line) {
  return run_key(line.at("id").get<std::string>(), line.at("policy").get<std::string>(),
                 line.at("budget").get<uint32_t>());
}

ordered_json head_to_json(const PointRecord& r) {
  ordered_json line;
  line["family"] = r.family;
  line["id"] = r.id;
  line["policy"] = r.label;
  line["spec"] = r.spec;
  line["budget"] = r.budget;
  line["refused"] = r.is_refused;
  if (r.is_refused) line["message"] = r.message;
  return line;
}

ordered_json to_json(const RunRecord& r) {
  ordered_json line = head_to_json(r);
  if (r.is_refused) return line;
  line["right"] = r.is_right;
  line["whole_text"] = r.is_whole_text;
  line["wrong_lines"] = r.n_wrong_lines;
  line["n_prompt"] = r.n_prompt;
  line["n_question"] = r.n_question;
  line["n_decode"] = r.n_decode;
  line["n_expected"] = r.n_expected;
  line["stop"] = r.stop;
  line["kv_peak_bytes"] = r.kv_peak_bytes;
  line["plan_bytes"] = r.plan_bytes;
  line["pages_evicted"] = r.pages_evicted;
  line["prefill_s"] = r.prefill_s;
  line["decode_s"] = r.decode_s;
  line["allocs_while_decoding"] = r.allocs_while_decoding;
  return line;
}

ResultsFile::ResultsFile(std::string path, const ordered_json& header) : path_(std::move(path)) {
  std::error_code none;
  bool is_empty = true;
  if (std::filesystem::is_regular_file(path_, none)) {  // a pipe or a device holds no earlier runs
    FileContent content = read_content(path_);
    is_empty = content.is_empty;
    if (!is_empty) compare_headers(path_, content.header, header);
    lines_ = std::move(content.lines);
    for (const ordered_json& line : lines_) keys_.insert(run_key(line));
    std::error_code error;  // what was torn off would run into the next line
    std::filesystem::resize_file(path_, content.n_whole_bytes, error);
    if (error) throw std::runtime_error(path_ + ": cannot cut its torn last line: " + error.message());
  }
  file_.reset(std::fopen(path_.c_str(), "ab"));
  if (!file_) fail_with_errno(path_, "open for writing");
  if (is_empty) write_line(header);
}

void ResultsFile::append(const ordered_json& line) {
  const std::lock_guard<std::mutex> lock(mutex_);
  write_line(line);
  lines_.push_back(line);
}

void ResultsFile::write_line(const ordered_json& line) {
  const std::string text = dump_json(line) + "\n";
  if (std::fwrite(text.data(), 1, text.size(), file_.get()) != text.size() || std::fflush(file_.get()) != 0) {
    fail_with_errno(path_, "write");
  }
}

Results read_results(const std::string& path, const std::string& mode) {
  FileContent content = read_content(path);
  if (content.is_empty) throw std::runtime_error(path + ": holds no results");
  const std::string found = content.header.value("mode", "");
  if (found != mode) throw std::runtime_error(path + ": made with mode \"" + found + "\", expected \"" + mode + "\"");
  return {std::move(content.header), std::move(content.lines)};
}

void check_specs(const ResultsFile& results, const EvalSettings& settings, const std::string& path) {
  for (const ordered_json& line : results.lines()) {
    for (const PolicyEntry& policy : settings.policies) {
      const std::string spec = line.value("spec", "");
      if (line.at("policy") != policy.label || spec == policy.spec()) continue;
      throw std::runtime_error(path + ": policy \"" + policy.label + "\" was " + spec + " there, this command has " +
                               policy.spec() + "; choose another label or another --out");
    }
  }
}

std::string run_text(const ordered_json& header) {
  return header.value("model", "") + ", seed " + std::to_string(header.value("seed", uint64_t{0}));
}

}  // namespace weir_cli
