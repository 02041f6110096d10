// What the archives that are linked in ask of glibc and versions from 2.28 on lack. cmake/WeirSelfContained.cmake has
// the linker take what is here instead (--wrap).
#include <dlfcn.h>
#include <link.h>
#include <sys/random.h>
#include <time.h>

#include <cerrno>
#include <cstdint>

// 2.32: whether the process has one thread, for cheaper counters. They are never that cheap here.
extern "C" char __wrap___libc_single_threaded;
char __wrap___libc_single_threaded = 0;

// 2.36: std::random_device, of which the program makes a seed. Where the system has no random numbers, or a sandbox
// keeps them, the time is one.
extern "C" uint32_t __wrap_arc4random();
extern "C" uint32_t __wrap_arc4random() {
  uint32_t number = 0;
  ssize_t n = 0;
  do {
    n = getrandom(&number, sizeof(number), 0);
  } while (n < 0 && errno == EINTR);
  if (n == sizeof(number)) return number;
  timespec now = {};
  (void)clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint32_t>(now.tv_nsec) * 2654435761u + static_cast<uint32_t>(now.tv_sec);
}

#ifdef DLFO_EH_SEGMENT_TYPE
// 2.35: where the unwinder finds the tables of the code at an address. Before, it searched the loaded objects.
namespace {
struct Search {
  ElfW(Addr) address;
  dl_find_object* out;
};

int look_into(dl_phdr_info* object, size_t, void* user) {
  const auto& search = *static_cast<const Search*>(user);
  bool is_it = false;
  const ElfW(Phdr)* tables = nullptr;
  for (int i = 0; i < object->dlpi_phnum; ++i) {
    const ElfW(Phdr)& segment = object->dlpi_phdr[i];
    const ElfW(Addr) first = object->dlpi_addr + segment.p_vaddr;
    if (segment.p_type == PT_LOAD && search.address >= first && search.address - first < segment.p_memsz) is_it = true;
    if (segment.p_type == DLFO_EH_SEGMENT_TYPE) tables = &segment;
  }
  if (!is_it) return 0;
  if (tables == nullptr) return -1;
  search.out->dlfo_eh_frame = reinterpret_cast<void*>(object->dlpi_addr + tables->p_vaddr);
  return 1;
}
}  // namespace

// Fills what libgcc reads.
extern "C" int __wrap__dl_find_object(void* address, dl_find_object* out);
extern "C" int __wrap__dl_find_object(void* address, dl_find_object* out) {
  Search search = {reinterpret_cast<ElfW(Addr)>(address), out};
  return dl_iterate_phdr(look_into, &search) == 1 ? 0 : -1;
}
#endif
