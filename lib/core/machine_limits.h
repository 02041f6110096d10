// What this process may use of the machine: the cores and memory that the system shows, and less where a container sets
// a limit. A limit counts in every control group that the process is in, its own and all above it that can be seen, of
// version 1 and version 2. Each call reads the files anew, since limits change while a process runs, and allocates
// nothing. A file that is missing or cannot be understood sets no limit.
#pragma once

#include <cstdint>

namespace weir {

inline constexpr uint64_t kNoLimit = UINT64_MAX;

struct ContainerLimits {
  uint64_t cpu_thousandths = kNoLimit;    // of a core: processor time that the process may use in a second
  uint64_t memory_bytes = kNoLimit;       // without swap
  uint64_t memory_swap_bytes = kNoLimit;  // memory and swap together
};

// `root` is put before every path: "" for the machine's own files, a folder in tests.
ContainerLimits read_container_limits(const char* root);

// Threads that `limits` leaves of `n_cores`: whole cores only, since threads that wait for one another lose more to
// being stopped than one thread more gains. At least 1.
uint32_t threads_within(uint32_t n_cores, const ContainerLimits& limits);

// Cores that this process may use, 1 or more.
uint32_t machine_threads();
// Memory that this process may use, without swap and with it; kNoLimit where the system does not tell.
uint64_t machine_memory_bytes();
uint64_t machine_memory_swap_bytes();

}  // namespace weir
