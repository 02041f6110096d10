// core: what a container leaves of the machine: limits of control groups of version 1 and 2, of the process's own group
// and of those above it, by files that may be missing or be anything.
#include "core/machine_limits.h"

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>

#include "core/memory.h"
#include "tests/cmocka_cpp.h"

using namespace weir;

namespace {

// A folder that stands for "/".
class Root {
 public:
  Root() : path_(std::filesystem::temp_directory_path() / "weir_limits_XXXXXX") {
    std::string name = path_.string();
    assert_non_null(mkdtemp(name.data()));
    path_ = name;
  }
  ~Root() { std::filesystem::remove_all(path_); }
  Root(const Root&) = delete;
  Root& operator=(const Root&) = delete;

  void write(const std::string& file, const std::string& text) const {
    const std::filesystem::path path = path_ / file;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }
  ContainerLimits read() const { return read_container_limits(path_.c_str()); }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

constexpr char kUnifiedMount[] =
    "21 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw\n"
    "30 21 0:26 / /sys/fs/cgroup rw,nosuid shared:4 master:2 - cgroup2 cgroup2 rw,nsdelegate\n";

void assert_limits(const Root& root, uint64_t cpu, uint64_t memory, uint64_t with_swap) {
  const ContainerLimits got = root.read();
  assert_int_equal(got.cpu_thousandths, cpu);
  assert_int_equal(got.memory_bytes, memory);
  assert_int_equal(got.memory_swap_bytes, with_swap);
}

void limits__of_no_container(void**) {
  const Root root;
  assert_limits(root, kNoLimit, kNoLimit, kNoLimit);  // there is not even a /proc
  root.write("proc/self/cgroup", "0::/\n");
  assert_limits(root, kNoLimit, kNoLimit, kNoLimit);
  root.write("proc/self/mountinfo", kUnifiedMount);
  assert_limits(root, kNoLimit, kNoLimit, kNoLimit);
  root.write("sys/fs/cgroup/cpu.max", "max 100000\n");
  root.write("sys/fs/cgroup/memory.max", "max\n");
  root.write("sys/fs/cgroup/memory.swap.max", "max\n");
  assert_limits(root, kNoLimit, kNoLimit, kNoLimit);
}

void limits__of_version_2(void**) {
  const Root root;
  root.write("proc/self/cgroup", "0::/\n");
  root.write("proc/self/mountinfo", kUnifiedMount);
  root.write("sys/fs/cgroup/cpu.max", "50000 100000\n");
  root.write("sys/fs/cgroup/memory.max", "1073741824\n");
  assert_limits(root, 500, 1073741824, kNoLimit);
  root.write("sys/fs/cgroup/memory.swap.max", "0\n");
  assert_limits(root, 500, 1073741824, 1073741824);
  root.write("sys/fs/cgroup/memory.swap.max", "4096");
  assert_limits(root, 500, 1073741824, 1073741824 + 4096);
  root.write("sys/fs/cgroup/cpu.max", "350000 100000");
  assert_limits(root, 3500, 1073741824, 1073741824 + 4096);
}

// The least of the process's own group and of all above it, also where some of them cannot be seen.
void limits__of_nested_groups(void**) {
  const Root root;
  root.write("proc/self/cgroup", "0::/a/b/c\n");
  root.write("proc/self/mountinfo", kUnifiedMount);
  root.write("sys/fs/cgroup/a/b/c/memory.max", "max\n");
  root.write("sys/fs/cgroup/a/b/memory.max", "3000\n");
  root.write("sys/fs/cgroup/a/memory.max", "2000\n");
  root.write("sys/fs/cgroup/a/b/c/cpu.max", "200000 100000\n");
  root.write("sys/fs/cgroup/a/cpu.max", "300000 100000\n");
  assert_limits(root, 2000, 2000, kNoLimit);
  root.write("sys/fs/cgroup/memory.max", "1000\n");
  root.write("sys/fs/cgroup/cpu.max", "100000 100000\n");
  assert_limits(root, 1000, 1000, kNoLimit);
  root.write("proc/self/cgroup", "0::/gone/b\n");
  assert_limits(root, 1000, 1000, kNoLimit);
  root.write("sys/memory.max", "10\n");  // above the mount
  root.write("proc/self/cgroup", "0::/../..\n");
  assert_limits(root, 1000, 1000, kNoLimit);
}

// A container that sees its own part of the hierarchy only: the group's path begins with that of the mount, or is that
// of another name space.
void limits__of_a_mounted_part(void**) {
  const Root root;
  root.write("proc/self/mountinfo",
             "30 21 0:26 /docker/12ab /sys/fs/cgroup ro - cgroup2 cgroup rw\n"
             "31 21 0:27 / /mnt/with\\040space rw - cgroup cgroup rw,cpu,cpuacct\n");
  root.write("sys/fs/cgroup/memory.max", "5000\n");
  root.write("sys/fs/cgroup/inner/memory.max", "4000\n");
  root.write("proc/self/cgroup", "0::/docker/12ab\n");
  assert_limits(root, kNoLimit, 5000, kNoLimit);
  root.write("proc/self/cgroup", "0::/docker/12ab/inner\n");
  assert_limits(root, kNoLimit, 4000, kNoLimit);
  root.write("proc/self/cgroup", "0::/docker/12abc/inner\n");
  assert_limits(root, kNoLimit, 5000, kNoLimit);
  root.write("proc/self/cgroup", "4:cpuacct,cpu:/x\n0::/docker/12ab\n");
  root.write("mnt/with space/x/cpu.cfs_quota_us", "150000\n");
  root.write("mnt/with space/x/cpu.cfs_period_us", "100000\n");
  assert_limits(root, 1500, 5000, kNoLimit);
}

void limits__of_version_1(void**) {
  const Root root;
  root.write("proc/self/cgroup", "9:name=systemd:/\n4:memory:/job/7\n3:cpuset:/c\n1:cpu,cpuacct:/job\n0::/\n");
  root.write("proc/self/mountinfo",
             "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n"
             "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
             "34 31 0:31 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n"
             "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
             "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n");
  const std::string cpu = "sys/fs/cgroup/cpu,cpuacct/", memory = "sys/fs/cgroup/memory/";
  root.write(cpu + "cpu.cfs_quota_us", "-1\n");
  root.write(cpu + "cpu.cfs_period_us", "100000\n");
  root.write(memory + "memory.limit_in_bytes", "9223372036854771712\n");
  assert_limits(root, kNoLimit, 9223372036854771712u, kNoLimit);
  root.write(cpu + "job/cpu.cfs_quota_us", "25000\n");
  root.write(cpu + "job/cpu.cfs_period_us", "50000\n");
  root.write(memory + "job/memory.limit_in_bytes", "8192\n");
  root.write(memory + "job/7/memory.limit_in_bytes", "16384\n");
  root.write(memory + "job/7/memory.memsw.limit_in_bytes", "20000\n");
  assert_limits(root, 500, 8192, 20000);
}

// Whatever the files hold, nothing is limited by it, and what is good counts.
void limits__of_garbage(void**) {
  const Root root;
  root.write("proc/self/cgroup", "\n:::\n0\n0:\n0::\n" + std::string(30000, 'x') + "\n0::/a\n");
  root.write("proc/self/mountinfo", std::string(20000, ' ') + "\n- - - - -\n\n1 2 3 / /x - cgroup2\n" + kUnifiedMount);
  root.write("sys/fs/cgroup/memory.max", "77\n");
  assert_limits(root, kNoLimit, 77, kNoLimit);  // of "0::", the first, whose path is empty
  for (const char* text : {"", "\n", " ", "-5", "0", "max", "1e9", "12 34x", "99999999999999999999", "0x10", "7k"}) {
    root.write("sys/fs/cgroup/memory.max", text);
    root.write("sys/fs/cgroup/cpu.max", text);
    const uint64_t memory = std::string(text) == "12 34x" ? 12 : kNoLimit;
    assert_limits(root, kNoLimit, memory, kNoLimit);
  }
  root.write("sys/fs/cgroup/memory.max", "1" + std::string(400, '0'));
  root.write("sys/fs/cgroup/cpu.max", "18446744073709551615 100000");
  assert_limits(root, kNoLimit, kNoLimit, kNoLimit);
  root.write("sys/fs/cgroup/cpu.max", "100000 0");
  assert_limits(root, kNoLimit, kNoLimit, kNoLimit);
  std::filesystem::remove(root.path() / "sys/fs/cgroup/cpu.max");
  std::filesystem::create_directory(root.path() / "sys/fs/cgroup/cpu.max");
  assert_limits(root, kNoLimit, kNoLimit, kNoLimit);
}

void threads__are_whole_cores(void**) {
  ContainerLimits limits;
  assert_int_equal(threads_within(8, limits), 8);
  for (auto [thousandths, wanted] :
       {std::pair{1u, 1u}, {500u, 1u}, {1000u, 1u}, {1999u, 1u}, {2000u, 2u}, {9000u, 8u}}) {
    limits.cpu_thousandths = thousandths;
    assert_int_equal(threads_within(8, limits), wanted);
  }
}

void machine__is_the_system_within_its_limits(void**) {
  const uint64_t allocs = HostMemory::thread_allocs();
  assert_true(machine_threads() >= 1);
  assert_true(machine_memory_bytes() > 0 && machine_memory_bytes() <= machine_memory_swap_bytes());
  assert_true(machine_memory_bytes() <= read_container_limits("").memory_bytes);
  assert_int_equal(HostMemory::thread_allocs(), allocs);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(limits__of_no_container),  cmocka_unit_test(limits__of_version_2),
      cmocka_unit_test(limits__of_nested_groups), cmocka_unit_test(limits__of_a_mounted_part),
      cmocka_unit_test(limits__of_version_1),     cmocka_unit_test(limits__of_garbage),
      cmocka_unit_test(threads__are_whole_cores), cmocka_unit_test(machine__is_the_system_within_its_limits),
  };
  return cmocka_run_group_tests_name("core_machine_limits", tests, nullptr, nullptr);
}
