// A model in several files. Each is a GGUF file of its own: the first has the model's keys, each has a part of the
// tensors, and all have split.no, split.count and split.tensors.count.
#include "gguf/parts.h"

#include <sys/stat.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "gguf/gguf.h"
#include "gguf/reader.h"

namespace weir {
namespace {

using std::string_view;

constexpr string_view kNumberKey = "split.no", kCountKey = "split.count", kTensorsKey = "split.tensors.count";
constexpr size_t kSuffixBytes = sizeof("-00001-of-00003.gguf") - 1;

// Five digits; -1 for anything else.
int64_t number_of(string_view digits) {
  int64_t n = 0;
  for (char c : digits) {
    if (c < '0' || c > '9') return -1;
    n = n * 10 + (c - '0');
  }
  return n;
}

bool same_value(const GgufValue& a, const GgufValue& b) {
  return a.type == b.type && a.element_type == b.element_type && a.count == b.count && a.raw == b.raw &&
         a.text == b.text && a.data_bytes == b.data_bytes &&
         (a.data_bytes == 0 || std::memcmp(a.data, b.data, a.data_bytes) == 0);
}

// Which part the keys say that the file is; part 0 of 1 where they say nothing.
Status read_part(const GgufFile& file, uint32_t& number, uint32_t& count) {
  WEIR_TRY(file.get_u32(kCountKey, count, 1));
  WEIR_TRY(file.get_u32(kNumberKey, number, 0));
  if (count <= 1) count = 1;
  if (count > kMaxParts || (count > 1 && number >= count))
    return fail(WEIR_ERR_FORMAT, "%s: %u of %s: %u", kNumberKey.data(), number, kCountKey.data(), count);
  return {};
}

Status missing_parts(PartName& name, uint32_t first_missing) {
  char list[512] = "";
  size_t used = 0;
  uint32_t n = 0;
  for (uint32_t i = first_missing; i < name.count(); ++i) {
    if (name.bytes(i) != 0) continue;
    const int more = std::snprintf(list + used, sizeof(list) - used, "%s%s", n == 0 ? "" : ", ", name.name(i));
    if (++n > 4 || more < 0 || used + static_cast<size_t>(more) >= sizeof(list)) list[used] = '\0';
    used = std::strlen(list);
  }
  return fail(WEIR_ERR_IO, "the model is in %u files, and %u %s missing beside this one: %s%s", name.count(), n,
              n == 1 ? "is" : "are", list, n > 4 ? ", ..." : "");
}

}  // namespace

PartName::PartName(const char* path, std::pmr::memory_resource* memory) : path_(path, memory) {
  if (path_.size() <= kSuffixBytes) return;
  const string_view suffix = string_view(path_).substr(path_.size() - kSuffixBytes);
  if (suffix[0] != '-' || suffix.substr(6, 4) != "-of-" || suffix.substr(15) != ".gguf") return;
  const int64_t number = number_of(suffix.substr(1, 5)), count = number_of(suffix.substr(10, 5));
  if (number < 1 || number > count || count < 2 || count > kMaxParts) return;
  number_ = static_cast<uint32_t>(number - 1);
  count_ = static_cast<uint32_t>(count);
  n_prefix_ = path_.size() - kSuffixBytes;
}

const char* PartName::path(uint32_t number) {
  char digits[6];
  std::snprintf(digits, sizeof(digits), "%05u", (number + 1) % 100000);
  path_.replace(n_prefix_ + 1, 5, digits);
  return path_.c_str();
}

const char* PartName::name(uint32_t number) {
  const char* whole = path(number);
  const char* slash = std::strrchr(whole, '/');
  return slash == nullptr ? whole : slash + 1;
}

uint64_t PartName::bytes(uint32_t number) {
  struct stat info;
  return stat(path(number), &info) == 0 && info.st_size > 0 ? static_cast<uint64_t>(info.st_size) : 0;
}

Status GgufFile::open(const char* path, OpenProgress& progress, const How& how) {
  std::pmr::memory_resource* memory = values_.get_allocator().resource();
  GgufFile(memory).swap(*this);
  GgufFile next(memory);
  PartName name(path, memory);
  uint64_t all = 0;
  for (uint32_t i = 0; name.is_part() && !how.alone && i < name.count(); ++i) all += name.bytes(i);
  progress.set_part(0, all);
  // A part that is not the first is opened only for its keys here.
  const bool looks = all != 0 && name.number() != 0;
  WEIR_TRY(next.open_one(path, progress, looks ? How() : how));
  uint32_t number = 0, count = 1;
  Status status = how.alone ? Status() : read_part(next, number, count);
  if (status.ok() && count > 1 && (name.count() != count || name.number() != number)) {
    status =
        fail(WEIR_ERR_FORMAT,
             "it is part %u of %u (%s, %s); to find the others, it must be called NAME-%05u-of-%05u.gguf, and they "
             "likewise",
             number + 1, count, kNumberKey.data(), kCountKey.data(), number + 1, count);
  }
  for (uint32_t i = 0; status.ok() && i < (count > 1 ? count : 0); ++i) {
    if (name.bytes(i) == 0) status = missing_parts(name, i);
  }
  if (!status.ok()) return in_file(status, path);
  if (count > 1) {
    if (number != 0) {
      progress.set_part(0, all);
      WEIR_TRY(next.open_one(name.path(0), progress, how));
    }
    WEIR_TRY(next.add_parts(name, progress, how));
  } else {
    progress.set_part(0, 0);
    progress.set_total(next.file_bytes());
    if (looks) WEIR_TRY(next.open_one(path, progress, how));
  }
  swap(next);
  return {};
}

Status GgufFile::add_parts(PartName& name, OpenProgress& progress, const How& how) {
  uint32_t number = 0, count = 1;
  Status status = read_part(*this, number, count);
  if (status.ok() && (number != 0 || count != name.count()))
    status = fail(WEIR_ERR_FORMAT, "by its keys it is part %u of %u (%s, %s)", number + 1, count, kNumberKey.data(),
                  kCountKey.data());
  if (!status.ok()) return in_file(status, name.path(0));
  parts_.reserve(name.count() - 1);
  uint64_t all = 0;
  for (uint32_t i = 0; i < name.count(); ++i) all += name.bytes(i);
  for (uint32_t i = 1; i < name.count(); ++i) {
    progress.set_part(file_bytes(), all);
    GgufFile part(values_.get_allocator().resource());
    WEIR_TRY(part.open_one(name.path(i), progress, how));
    status = add_part(i, name.count(), part);
    if (!status.ok()) return in_file(status, name.path(i));
  }
  progress.set_part(0, file_bytes());
  status = index_tensors(progress);
  if (status.ok() && find(kTensorsKey) != nullptr) {
    uint32_t n = 0;
    status = get_u32(kTensorsKey, n);
    if (status.ok() && n != tensors_.size()) {
      status = fail(WEIR_ERR_FORMAT, "%s: %u, but the %u parts have %zu tensors", kTensorsKey.data(), n, name.count(),
                    tensors_.size());
    }
  }
  return status.ok() ? status : in_file(status, name.path(0));
}

// Takes the bytes and tensors of `part` over, if it is the part that it should be, of this model.
Status GgufFile::add_part(uint32_t expected, uint32_t expected_count, GgufFile& part) {
  uint32_t number = 0, count = 1;
  WEIR_TRY(read_part(part, number, count));
  if (number != expected || count != expected_count) {
    return fail(WEIR_ERR_FORMAT, "by its keys it is part %u of %u (%s, %s)", number + 1, count, kNumberKey.data(),
                kCountKey.data());
  }
  for (const GgufValue& value : part.values_) {
    if (value.key == kNumberKey || value.key == "general.alignment") continue;
    const GgufValue* ours = find(value.key);
    if (ours == nullptr || same_value(*ours, value)) continue;
    return fail(WEIR_ERR_FORMAT, "%.*s differs from that of part 1; the part belongs to another model",
                shown_bytes(value.key), value.key.data());
  }
  for (GgufTensor tensor : part.tensors_) {
    tensor.part = number;
    tensors_.push_back(tensor);
  }
  parts_.push_back(std::move(part.file_));
  return {};
}

// The names of the tensors of all parts.
Status GgufFile::index_tensors(OpenProgress& progress) {
  by_name_.resize(tensors_.size());
  for (size_t i = 0; i < by_name_.size(); ++i) by_name_[i] = static_cast<uint32_t>(i);
  WEIR_TRY(progress.sort(by_name_.begin(), by_name_.end(),
                         [&](uint32_t a, uint32_t b) { return tensors_[a].name < tensors_[b].name; }));
  for (size_t i = 1; i < by_name_.size(); ++i) {
    const GgufTensor &a = tensors_[by_name_[i - 1]], &b = tensors_[by_name_[i]];
    if (a.name != b.name) continue;
    const auto [first, second] = std::minmax(a.part, b.part);
    return fail(WEIR_ERR_FORMAT, "%.*s: parts %u and %u both have a tensor of this name", shown_bytes(a.name),
                a.name.data(), first + 1, second + 1);
  }
  return {};
}

}  // namespace weir
