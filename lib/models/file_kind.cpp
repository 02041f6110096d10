// Told by general.type, and in files without it by the architecture or a key that only such files have.
#include "models/file_kind.h"

#include <string_view>

namespace weir {
namespace {

struct FileKind {
  const char *type, *arch, *key;  // any of them may be null
  const char* what;
};
constexpr FileKind kKinds[] = {
    {"adapter", nullptr, "adapter.type",
     "a LoRA adapter, a change to a model; merge it into its base model (llama.cpp: llama-export-lora) and open that"},
    {"mmproj", "clip", "clip.has_vision_encoder",
     "the part of a model that sees or hears (mmproj); open the file of the language model, which answers to text "
     "alone"},
    {"imatrix", nullptr, "imatrix.datasets",
     "an importance matrix, statistics for making quantised files; open the model that was made with it"},
    {nullptr, "controlvector", nullptr, "a control vector, a change to a model; open the model itself"},
};

}  // namespace

Status refuse_other_kinds(const GgufFile& file) {
  std::string_view type, arch;
  if (!file.get_string("general.type", type, "").ok()) type = {};  // of another kind of value: no such type
  if (!file.get_string("general.architecture", arch, "").ok()) arch = {};
  for (const FileKind& kind : kKinds) {
    const bool is_it = (kind.type != nullptr && type == kind.type) || (kind.arch != nullptr && arch == kind.arch) ||
                       (kind.key != nullptr && type.empty() && file.find(kind.key) != nullptr);
    if (is_it) return fail(WEIR_ERR_UNSUPPORTED, "this is no model but %s", kind.what);
  }
  return {};
}

}  // namespace weir
