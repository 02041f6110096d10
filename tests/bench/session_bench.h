// What the measurements of whole sessions share: command lines, errors, and resident memory.
#pragma once

#include <time.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <initializer_list>
#include <string>
#include <vector>

#include "weir/weir.h"

namespace session_bench {

inline void check(weir_status status, const char* what) {
  if (status == WEIR_OK) return;
  std::fprintf(stderr, "%s: %s\n", what, weir_last_error());
  std::exit(1);
}

// "-<letter> VALUE": where the value goes; one of the three is set.
struct Flag {
  char letter;
  const char** text = nullptr;
  uint32_t* number = nullptr;
  std::vector<std::string>* texts = nullptr;  // may be given several times
};

// Ends the program when the command line has anything else.
inline void read_flags(int argc, char** argv, std::initializer_list<Flag> flags) {
  for (int i = 1; i < argc; i += 2) {
    const Flag* found = nullptr;
    for (const Flag& flag : flags) {
      if (argv[i][0] == '-' && argv[i][1] == flag.letter && argv[i][2] == '\0') found = &flag;
    }
    if (found == nullptr || i + 1 == argc) {
      std::fprintf(stderr, "%s: %s is not known, or has no value\n", argv[0], argv[i]);
      std::exit(2);
    }
    const char* value = argv[i + 1];
    if (found->text != nullptr) *found->text = value;
    if (found->number != nullptr) *found->number = static_cast<uint32_t>(std::strtoul(value, nullptr, 10));
    if (found->texts != nullptr) found->texts->emplace_back(value);
  }
}

// What the calling thread has computed, which others do not disturb much.
inline double thread_us() {
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) * 1e6 + static_cast<double>(t.tv_nsec) * 1e-3;
}

inline uint64_t resident_bytes() {
  std::FILE* file = std::fopen("/proc/self/statm", "r");
  unsigned long all = 0, resident = 0;
  if (file == nullptr || std::fscanf(file, "%lu %lu", &all, &resident) != 2) resident = 0;
  if (file != nullptr) std::fclose(file);
  return uint64_t{resident} * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

}  // namespace session_bench
