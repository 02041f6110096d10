// Functions of glibc by their oldest names, so that a library that was linked with a new glibc runs with one from 2.28
// on. cmake/WeirSelfContained.cmake has the linker send every call of the functions that begin a line here to
// __wrap_NAME (--wrap), also those of the archives that are linked in. A function that nothing calls is dropped.
//
// Before 2.34 some of them are in libpthread.so.0, libdl.so.2 and librt.so.1, which the library does not name: newer
// systems need not have them, and a program need not be linked with them. Most processes have the first two. In one
// that has not, they are loaded when the library is, in the way of glibc's own parts.
#include <dlfcn.h>
#include <sys/stat.h>

#if !defined(__x86_64__)
#error "the versions and the jump are those of x86-64"
#endif

namespace {

// An entry for each function that is called, in a section of their own.
struct Function {
  void* address;  // null: no library of the process has it
  const char* name;
};

}  // namespace

// The jump leaves arguments as they are, and the return address, from which dlopen knows its caller. The entry is
// linked when the jump is (flag o).
#define OLD_FUNCTION(name, version)                                            \
  asm(".pushsection .text.__wrap_" #name                                       \
      ",\"ax\",@progbits\n"                                                    \
      ".globl __wrap_" #name "\n.hidden __wrap_" #name "\n.type __wrap_" #name \
      ",@function\n"                                                           \
      "__wrap_" #name ":\nendbr64\njmp *weir_entry_" #name                     \
      "(%rip)\n"                                                               \
      ".size __wrap_" #name ",.-__wrap_" #name                                 \
      "\n.popsection\n"                                                        \
      ".pushsection weir_old_glibc,\"awo\",@progbits,.text.__wrap_" #name      \
      "\n.balign 8\n"                                                          \
      "weir_entry_" #name ":\n.quad weir_old_" #name ",weir_name_" #name       \
      "\n.popsection\n"                                                        \
      ".pushsection .rodata.weir_name_" #name                                  \
      ",\"a\",@progbits\n"                                                     \
      "weir_name_" #name ":.asciz \"" #name                                    \
      "\"\n.popsection\n"                                                      \
      ".weak weir_old_" #name "\n.symver weir_old_" #name "," #name "@" version)

// 2.29 gave them names without the error handling of System V.
OLD_FUNCTION(exp, "GLIBC_2.2.5");
OLD_FUNCTION(exp2, "GLIBC_2.2.5");
OLD_FUNCTION(log, "GLIBC_2.2.5");
OLD_FUNCTION(log2, "GLIBC_2.2.5");
OLD_FUNCTION(pow, "GLIBC_2.2.5");
// 2.34 made these parts of libc, 2.32 pthread_sigmask. Most are the CUDA runtime's.
OLD_FUNCTION(dladdr, "GLIBC_2.2.5");
OLD_FUNCTION(dlclose, "GLIBC_2.2.5");
OLD_FUNCTION(dlerror, "GLIBC_2.2.5");
OLD_FUNCTION(dlmopen, "GLIBC_2.3.4");
OLD_FUNCTION(dlopen, "GLIBC_2.2.5");
OLD_FUNCTION(dlsym, "GLIBC_2.2.5");
OLD_FUNCTION(dlvsym, "GLIBC_2.2.5");
OLD_FUNCTION(pthread_condattr_setpshared, "GLIBC_2.2.5");
OLD_FUNCTION(pthread_create, "GLIBC_2.2.5");
OLD_FUNCTION(pthread_detach, "GLIBC_2.2.5");
OLD_FUNCTION(pthread_getspecific, "GLIBC_2.2.5");
OLD_FUNCTION(pthread_join, "GLIBC_2.2.5");
OLD_FUNCTION(pthread_key_create, "GLIBC_2.2.5");
OLD_FUNCTION(__pthread_key_create, "GLIBC_2.2.5");
OLD_FUNCTION(pthread_key_delete, "GLIBC_2.2.5");
OLD_FUNCTION(pthread_kill, "GLIBC_2.2.5");
OLD_FUNCTION(pthread_mutex_trylock, "GLIBC_2.2.5");
OLD_FUNCTION(pthread_mutexattr_destroy, "GLIBC_2.2.5");
OLD_FUNCTION(pthread_mutexattr_init, "GLIBC_2.2.5");
OLD_FUNCTION(pthread_mutexattr_setpshared, "GLIBC_2.2.5");
OLD_FUNCTION(pthread_mutexattr_settype, "GLIBC_2.2.5");
OLD_FUNCTION(pthread_once, "GLIBC_2.2.5");
OLD_FUNCTION(pthread_rwlock_destroy, "GLIBC_2.2.5");
OLD_FUNCTION(pthread_rwlock_init, "GLIBC_2.2.5");
OLD_FUNCTION(pthread_rwlock_rdlock, "GLIBC_2.2.5");
OLD_FUNCTION(pthread_rwlock_timedrdlock, "GLIBC_2.2.5");
OLD_FUNCTION(pthread_rwlock_timedwrlock, "GLIBC_2.2.5");
OLD_FUNCTION(pthread_rwlock_tryrdlock, "GLIBC_2.2.5");
OLD_FUNCTION(pthread_rwlock_trywrlock, "GLIBC_2.2.5");
OLD_FUNCTION(pthread_rwlock_unlock, "GLIBC_2.2.5");
OLD_FUNCTION(pthread_rwlock_wrlock, "GLIBC_2.2.5");
OLD_FUNCTION(pthread_rwlockattr_destroy, "GLIBC_2.2.5");
OLD_FUNCTION(pthread_rwlockattr_init, "GLIBC_2.2.5");
OLD_FUNCTION(pthread_rwlockattr_setpshared, "GLIBC_2.2.5");
OLD_FUNCTION(pthread_setspecific, "GLIBC_2.2.5");
OLD_FUNCTION(pthread_sigmask, "GLIBC_2.2.5");
OLD_FUNCTION(pthread_spin_destroy, "GLIBC_2.2.5");
OLD_FUNCTION(pthread_spin_init, "GLIBC_2.2.5");
OLD_FUNCTION(pthread_spin_lock, "GLIBC_2.2.5");
OLD_FUNCTION(pthread_spin_trylock, "GLIBC_2.2.5");
OLD_FUNCTION(pthread_spin_unlock, "GLIBC_2.2.5");
OLD_FUNCTION(sem_destroy, "GLIBC_2.2.5");
OLD_FUNCTION(sem_init, "GLIBC_2.2.5");
OLD_FUNCTION(sem_post, "GLIBC_2.2.5");
OLD_FUNCTION(sem_timedwait, "GLIBC_2.2.5");
OLD_FUNCTION(sem_trywait, "GLIBC_2.2.5");
OLD_FUNCTION(sem_wait, "GLIBC_2.2.5");
OLD_FUNCTION(shm_open, "GLIBC_2.2.5");
OLD_FUNCTION(shm_unlink, "GLIBC_2.2.5");

// 2.33 made functions of what had been inline functions over these. The first argument is the layout of struct stat.
#define OLD_STAT(name, old_name, type, parameter)                        \
  extern "C" int old_name(int layout, type parameter, struct stat* out); \
  extern "C" int __wrap_##name(type parameter, struct stat* out);        \
  extern "C" int __wrap_##name(type parameter, struct stat* out) { return old_name(1, parameter, out); }
OLD_STAT(stat, __xstat, const char*, path)
OLD_STAT(lstat, __lxstat, const char*, path)
OLD_STAT(fstat, __fxstat, int, file)
OLD_STAT(stat64, __xstat64, const char*, path)
OLD_STAT(lstat64, __lxstat64, const char*, path)
OLD_STAT(fstat64, __fxstat64, int, file)

extern "C" {
// The linker defines these where there is any entry.
__attribute__((visibility("hidden"), weak)) extern Function __start_weir_old_glibc[];
__attribute__((visibility("hidden"), weak)) extern Function __stop_weir_old_glibc[];
// With these libc opens its own parts in the versions that have such parts, and in no other.
__attribute__((weak)) void* __libc_dlopen_mode(const char* file, int mode);
__attribute__((weak)) void* __libc_dlsym(void* file, const char* name);
}

// Before the library's other constructors, which may call them.
__attribute__((constructor(101))) static void find_functions() {
  constexpr unsigned kOfLibc = 0x80000000;  // what glibc itself adds to the mode
  constexpr const char* kFiles[] = {"libpthread.so.0", "libdl.so.2", "librt.so.1"};
  if (&__libc_dlopen_mode == nullptr || &__libc_dlsym == nullptr) return;
  for (Function* f = __start_weir_old_glibc; f != __stop_weir_old_glibc; ++f) {
    for (const char* file : kFiles) {
      if (f->address != nullptr) break;
      void* opened = __libc_dlopen_mode(file, static_cast<int>(RTLD_NOW | kOfLibc));
      if (opened != nullptr) f->address = __libc_dlsym(opened, f->name);
    }
  }
}
