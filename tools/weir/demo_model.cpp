// The embedded model; see demo_model.h.
#include "demo_model.h"

#include <filesystem>
#include <stdexcept>
#include <vector>

#include "output.h"

namespace weir_cli {
namespace {

namespace fs = std::filesystem;

constexpr char kModelName[] = "weir-tiny-reasoner-q8_0.gguf";
constexpr char kNameInFile[] = "Weir Tiny Reasoner";

}  // namespace

std::string find_reasoner() {
  const fs::path in_tree = fs::path("samples") / "models" / kModelName;
  std::vector<fs::path> places = {in_tree};
#ifdef WEIR_SOURCE_DIR
  places.push_back(WEIR_SOURCE_DIR / in_tree);
#endif
  std::error_code error;
  const fs::path folder_of_program = fs::read_symlink("/proc/self/exe", error).parent_path();
  fs::path folder = folder_of_program;
  places.push_back(folder / kModelName);
  places.push_back(folder / WEIR_MODEL_FOLDER / kModelName);
  for (; folder.has_relative_path(); folder = folder.parent_path()) places.push_back(folder / in_tree);
  for (const fs::path& place : places) {
    if (fs::exists(place, error)) return place.string();
  }
  throw std::runtime_error(std::string("cannot find ") + kModelName + ", which is installed with the program to " +
                           (folder_of_program / WEIR_MODEL_FOLDER).lexically_normal().string() +
                           " and lies in samples/models of Weir's source; -m FILE names it elsewhere");
}

void require_reasoner(const weir_model* model, const std::string& way_out) {
  const std::string name = model_info(model).name;
  if (name != kNameInFile)
    throw std::runtime_error("\"" + plain_line(name) + "\" was not trained on chain problems; " + way_out);
}

}  // namespace weir_cli
