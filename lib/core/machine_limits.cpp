// Limits of control groups. /proc/self/cgroup names the group of each hierarchy, /proc/self/mountinfo where the
// hierarchy is mounted; the files of the group and of every group above it, up to the mount, set limits.
#include "core/machine_limits.h"

#include <fcntl.h>
#include <sched.h>
#include <unistd.h>
#if defined(__linux__)
#include <sys/sysinfo.h>
#endif

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <string_view>

namespace weir {
namespace {

constexpr size_t kPathBytes = 1024;  // paths of groups are far shorter, and threads of an application have small stacks

// A path in a fixed buffer; one that does not fit is not ok, and nothing is read from it.
class Path {
 public:
  explicit Path(std::string_view text = {}) {
    text_[0] = '\0';
    append(text);
  }
  void append(std::string_view text) {
    if (n_ + text.size() >= kPathBytes) is_ok_ = false;
    if (!is_ok_) return;
    text.copy(text_ + n_, text.size());
    n_ += text.size();
    text_[n_] = '\0';
  }
  void cut(size_t n) { text_[n_ = std::min(n, n_)] = '\0'; }
  bool ok() const { return is_ok_; }
  std::string_view view() const { return {text_, n_}; }
  const char* text() const { return text_; }

 private:
  char text_[kPathBytes];
  size_t n_ = 0;
  bool is_ok_ = true;
};

class File {
 public:
  explicit File(const Path& path) {
    // Whatever lies there, opening it must not wait.
    if (path.ok()) fd_ = open(path.text(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  }
  ~File() {
    if (fd_ >= 0) close(fd_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  size_t read_some(char* to, size_t room) const {
    const ssize_t n = fd_ < 0 ? -1 : read(fd_, to, room);
    return n < 0 ? 0 : static_cast<size_t>(n);
  }

  // A line longer than the buffer is left out.
  template <class F>
  void each_line(F&& use) const {
    char buffer[2 * kPathBytes];
    size_t n = 0;
    bool is_rest = false;  // of a line that is left out
    for (;;) {
      const size_t got = read_some(buffer + n, sizeof(buffer) - n);
      n += got;
      size_t begin = 0;
      for (size_t i = n - got; i < n; ++i) {
        if (buffer[i] != '\n') continue;
        if (!is_rest) use(std::string_view(buffer + begin, i - begin));
        is_rest = false;
        begin = i + 1;
      }
      if (got == 0) {
        if (!is_rest && n != 0) use(std::string_view(buffer, n));
        return;
      }
      n -= begin;
      std::memmove(buffer, buffer + begin, n);
      if (n == sizeof(buffer)) {
        n = 0;
        is_rest = true;
      }
    }
  }

 private:
  int fd_ = -1;
};

// Takes what comes before the next `separator` off `text`.
std::string_view take(std::string_view& text, char separator) {
  const std::string_view piece = text.substr(0, text.find(separator));
  text.remove_prefix(std::min(text.size(), piece.size() + 1));
  return piece;
}

bool has_word(std::string_view list, std::string_view word) {
  while (!list.empty()) {
    if (take(list, ',') == word) return true;
  }
  return false;
}

// A number above 0. "max" and -1 are no limit, and so is what is no number; so is 0, which no running process can have.
uint64_t limit_of(std::string_view text) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value == 0) return kNoLimit;
  return value;
}

// The first words of a small file.
struct Words {
  char text[128] = {};
  std::string_view first, second;
};

void read_words(Path& group, const char* file, Words& out) {
  const size_t n_group = group.view().size();
  group.append("/");
  group.append(file);
  size_t n = File(group).read_some(out.text, sizeof(out.text));
  if (n == sizeof(out.text)) n = 0;  // no such file is that long
  std::string_view line(out.text, n);
  line = line.substr(0, line.find('\n'));
  out.first = take(line, ' ');
  out.second = take(line, ' ');
  group.cut(n_group);
}

uint64_t read_limit(Path& group, const char* file) {
  Words words;
  read_words(group, file, words);
  return limit_of(words.first);
}

void lower(uint64_t& limit, uint64_t to) { limit = std::min(limit, to); }

void lower_cpu(ContainerLimits& out, uint64_t quota_us, uint64_t period_us) {
  // The kernel takes periods of at most a second; a quota so large that the product would not fit is no limit.
  if (quota_us == kNoLimit || period_us == kNoLimit || quota_us > kNoLimit / 1000) return;
  lower(out.cpu_thousandths, std::max<uint64_t>(1, quota_us * 1000 / period_us));
}

enum class Hierarchy { kUnified, kCpu, kMemory };

void read_group(Path& group, Hierarchy hierarchy, ContainerLimits& out) {
  if (hierarchy == Hierarchy::kUnified) {
    Words cpu;
    read_words(group, "cpu.max", cpu);
    lower_cpu(out, limit_of(cpu.first), limit_of(cpu.second));
    const uint64_t memory = read_limit(group, "memory.max");
    lower(out.memory_bytes, memory);
    // 0 of swap is a limit like any other here.
    Words swap;
    read_words(group, "memory.swap.max", swap);
    const uint64_t swap_bytes = swap.first == "0" ? 0 : limit_of(swap.first);
    if (memory != kNoLimit && swap_bytes <= kNoLimit - memory) lower(out.memory_swap_bytes, memory + swap_bytes);
  } else if (hierarchy == Hierarchy::kCpu) {
    lower_cpu(out, read_limit(group, "cpu.cfs_quota_us"), read_limit(group, "cpu.cfs_period_us"));
  } else {
    lower(out.memory_bytes, read_limit(group, "memory.limit_in_bytes"));
    lower(out.memory_swap_bytes, read_limit(group, "memory.memsw.limit_in_bytes"));
  }
}

// Every group from `group` up to the mount, whose path is its first `n_mount` bytes. Where one cannot be read (the
// path is that of another name space), those above it still count.
void read_groups(Path& group, size_t n_mount, Hierarchy hierarchy, ContainerLimits& out) {
  for (;;) {
    read_group(group, hierarchy, out);
    if (group.view().size() <= n_mount) return;
    group.cut(std::max(n_mount, group.view().rfind('/')));
  }
}

// What mountinfo writes as \040 and the like.
void append_unescaped(Path& to, std::string_view text) {
  while (!text.empty()) {
    const auto is_octal = [&](size_t i) { return text[i] >= '0' && text[i] <= '7'; };
    if (text[0] == '\\' && text.size() > 3 && is_octal(1) && is_octal(2) && is_octal(3)) {
      const int code = (text[1] - '0') * 64 + (text[2] - '0') * 8 + (text[3] - '0');
      const char c = static_cast<char>(code);
      to.append({&c, 1});
      text.remove_prefix(4);
    } else {
      to.append(text.substr(0, 1));
      text.remove_prefix(1);
    }
  }
}

// The path of the process's group in a hierarchy; false where there is none.
bool find_group(const char* root, Hierarchy hierarchy, Path& out) {
  Path path(root);
  path.append("/proc/self/cgroup");
  bool is_found = false;
  File(path).each_line([&](std::string_view line) {  // number:controllers:path
    const std::string_view number = take(line, ':'), controllers = take(line, ':');
    const bool is_wanted = hierarchy == Hierarchy::kUnified ? number == "0" && controllers.empty()
                           : hierarchy == Hierarchy::kCpu   ? has_word(controllers, "cpu")
                                                            : has_word(controllers, "memory");
    if (!is_wanted || is_found) return;
    is_found = true;
    out.append(line);
  });
  return is_found && out.ok();
}

// A mount of a hierarchy in mountinfo: "number parent device root point options [optional...] - type source options".
bool read_mount(std::string_view line, Hierarchy hierarchy, Path& root, Path& point) {
  for (int i = 0; i < 3; ++i) take(line, ' ');
  const std::string_view shown_root = take(line, ' '), shown_point = take(line, ' ');
  while (!line.empty() && take(line, ' ') != "-") {
  }
  const std::string_view type = take(line, ' ');
  take(line, ' ');
  if (hierarchy == Hierarchy::kUnified
          ? type != "cgroup2"
          : type != "cgroup" || !has_word(line, hierarchy == Hierarchy::kCpu ? "cpu" : "memory"))
    return false;
  append_unescaped(root, shown_root);
  append_unescaped(point, shown_point);
  return root.ok() && point.ok() && !point.view().empty();
}

// The part of `group` below the group that is mounted; "" for that group itself and for one that is not below it.
std::string_view below(std::string_view group, std::string_view mounted) {
  if (mounted == "/") mounted = "";
  if (group.substr(0, mounted.size()) != mounted) return {};
  group.remove_prefix(mounted.size());
  if (group.empty() || group[0] != '/' || group == "/") return {};
  // A group outside of the name space is shown as "/../other": its path leads nowhere below the mount.
  return group.find("/..") == group.npos ? group : std::string_view();
}

void read_hierarchy(const char* root, Hierarchy hierarchy, ContainerLimits& out) {
  Path group;
  if (!find_group(root, hierarchy, group)) return;
  Path path(root);
  path.append("/proc/self/mountinfo");
  File(path).each_line([&](std::string_view line) {
    Path mounted, point(root);
    if (!read_mount(line, hierarchy, mounted, point)) return;
    const size_t n_mount = point.view().size();
    point.append(below(group.view(), mounted.view()));
    if (point.ok()) read_groups(point, n_mount, hierarchy, out);
  });
}

#if defined(__linux__)
uint64_t system_memory(bool with_swap) {
  struct sysinfo machine = {};
  if (sysinfo(&machine) != 0) return kNoLimit;
  return (uint64_t{machine.totalram} + (with_swap ? uint64_t{machine.totalswap} : 0)) * machine.mem_unit;
}
#else
uint64_t system_memory(bool) {
  const long pages = sysconf(_SC_PHYS_PAGES), page_bytes = sysconf(_SC_PAGESIZE);
  return pages > 0 && page_bytes > 0 ? static_cast<uint64_t>(pages) * static_cast<uint64_t>(page_bytes) : kNoLimit;
}
#endif

}  // namespace

ContainerLimits read_container_limits(const char* root) {
  ContainerLimits limits;
  for (Hierarchy hierarchy : {Hierarchy::kUnified, Hierarchy::kCpu, Hierarchy::kMemory})
    read_hierarchy(root, hierarchy, limits);
  return limits;
}

uint32_t threads_within(uint32_t n_cores, const ContainerLimits& limits) {
  return static_cast<uint32_t>(std::max<uint64_t>(1, std::min<uint64_t>(n_cores, limits.cpu_thousandths / 1000)));
}

uint32_t machine_threads() {
  cpu_set_t set;
  CPU_ZERO(&set);
  // The call fails on machines with more cores than the set can name.
  const long n = sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : sysconf(_SC_NPROCESSORS_ONLN);
  return threads_within(static_cast<uint32_t>(std::max(1L, n)), read_container_limits(""));
}

uint64_t machine_memory_bytes() { return std::min(system_memory(false), read_container_limits("").memory_bytes); }

// Swap that a limit allows but the machine lacks is none.
uint64_t machine_memory_swap_bytes() {
  const ContainerLimits limits = read_container_limits("");
  const uint64_t memory = system_memory(false), both = system_memory(true);
  uint64_t within = std::min(both, limits.memory_swap_bytes);
  if (limits.memory_bytes < memory) within = std::min(within, limits.memory_bytes + (both - memory));
  return within;
}

}  // namespace weir
