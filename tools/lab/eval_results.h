// The results file of an evaluation: a header line that says what was run, then one JSON object a line. Lines are
// appended as runs end, so that a stopped evaluation loses none; a torn last line is dropped when the file is read.
#pragma once

#include <cstdio>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "eval_run.h"
#include "out_file.h"

namespace weir_cli {

// What makes two results comparable. A file with another header is an error that names what differs. The first has what
// all modes have, the second what problems are made of.
nlohmann::ordered_json run_header(const std::string& mode, const std::string& model_path, uint64_t model_bytes);
nlohmann::ordered_json results_header(const EvalSettings& settings, const std::string& mode,
                                      const std::string& model_path, uint64_t model_bytes);

// What a run is found again by.
std::string run_key(const std::string& id, const std::string& label, uint32_t budget);
std::string run_key(const nlohmann::ordered_json& line);

// What the lines of all modes start with; a refused point's line has nothing more.
nlohmann::ordered_json head_to_json(const PointRecord& record);
nlohmann::ordered_json to_json(const RunRecord& record);

class ResultsFile {
 public:
  // Opens `path` and reads what it holds, or starts it with `header`. Throws std::runtime_error naming the file and
  // what is wrong.
  ResultsFile(std::string path, const nlohmann::ordered_json& header);

  bool has(const std::string& key) const { return keys_.count(key) != 0; }  // of the lines that were there when opened
  const std::vector<nlohmann::ordered_json>& lines() const { return lines_; }

  // Any thread. The line is on its way to the disk when the call returns.
  void append(const nlohmann::ordered_json& line);

 private:
  void write_line(const nlohmann::ordered_json& line);

  std::string path_;
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file_{nullptr, std::fclose};
  std::mutex mutex_;
  std::vector<nlohmann::ordered_json> lines_;
  std::set<std::string> keys_;
};

// A label that meant something else in the runs that are there would mix two policies in one line; throws
// std::runtime_error that names it.
void check_specs(const ResultsFile& results, const EvalSettings& settings, const std::string& path);

struct Results {
  nlohmann::ordered_json header;
  std::vector<nlohmann::ordered_json> lines;
};
// All of a results file; `mode` is what the header must say.
Results read_results(const std::string& path, const std::string& mode);

// What was run, for titles: "weir-tiny-reasoner-q8_0.gguf, seed 1".
std::string run_text(const nlohmann::ordered_json& header);

}  // namespace weir_cli
