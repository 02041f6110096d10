/* Weir: the runtime. It owns the worker threads, the backends and the hooks for memory and log lines. */
#ifndef WEIR_RUNTIME_H
#define WEIR_RUNTIME_H

#include "weir/base.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Worker threads, backends and hooks. One per process is usual; several are independent of each other. */
typedef struct weir_runtime weir_runtime;

/** Kinds of memory that the allocator hooks are asked for. */
enum weir_memory_kind {
    WEIR_MEMORY_HOST = 0,  /**< Ordinary memory of the process. */
    WEIR_MEMORY_DEVICE = 1 /**< Memory of an accelerator, which only the device hooks are asked for; the pointer is a
                                device pointer. */
};

/** One request to an allocator hook.
 *  @since 1.0 */
typedef struct weir_alloc_info {
    uint32_t struct_size; /**< sizeof this struct in the library's build. */
    int32_t kind;         /**< WEIR_MEMORY_*. */
    uint64_t bytes;       /**< Size, at least 1. */
    uint64_t alignment;   /**< A power of two, at most 4096. */
    void *ptr;            /**< NULL in alloc; in free the pointer that alloc gave. */
} weir_alloc_info;

/** Hook that allocates. Store the pointer in @p out and return WEIR_OK; to refuse, return any error or throw: the call
 *  that needed the memory fails with WEIR_ERR_OUT_OF_MEMORY. Memory that is not aligned as asked goes back to the free
 *  hook at once and counts as a refusal. Called on any thread. While the weights of a model are copied to a device, the
 *  hooks run under a lock of that model: there they may not create another of its sessions, nor wait for a thread that
 *  does. */
typedef weir_status (*weir_alloc_fn)(void *user, const weir_alloc_info *info, void **out);

/** Hook that frees `info->ptr`; bytes, alignment and kind are those of the allocation. Its status is ignored, an
 *  exception dropped. Called on any thread. */
typedef weir_status (*weir_free_fn)(void *user, const weir_alloc_info *info);

/** Severity of a log line. */
enum weir_log_level { WEIR_LOG_ERROR = 0, WEIR_LOG_WARNING = 1, WEIR_LOG_INFO = 2, WEIR_LOG_DEBUG = 3 };

/** One log line.
 *  @since 1.0 */
typedef struct weir_log_info {
    uint32_t struct_size;   /**< sizeof this struct in the library's build. */
    int32_t level;          /**< WEIR_LOG_*. */
    const char *message;    /**< One line of UTF-8, NUL-terminated, at most 511 bytes; valid during the call. Escaped
                                 like the text of weir_last_error. */
    uint64_t message_bytes; /**< Length of @ref message without the NUL. */
} weir_log_info;

/** Hook that receives log lines; its status is ignored, an exception dropped. Called on the thread that made the API
 *  call. */
typedef weir_status (*weir_log_fn)(void *user, const weir_log_info *info);

/** Devices that a session can run on. */
enum weir_device_type {
    WEIR_DEVICE_AUTO = 0,  /**< The first of these that can run the session: CUDA's device; of Vulkan's devices the
                                discrete GPU with the most memory, then an integrated GPU; the CPU. A device is passed
                                over whose memory cannot hold the model, which lacks what the session needs (its policy
                                and options, device memory from hooks), or if the model's weights are already on
                                another. If weir_runtime_options.vulkan_device names a device, no other one of Vulkan's
                                is looked at. Never a Vulkan driver that computes on the processor, and a virtual
                                device only if it is named. */
    WEIR_DEVICE_CPU = 1,   /**< This machine's processor cores. */
    WEIR_DEVICE_CUDA = 2,  /**< The first NVIDIA GPU that the driver shows. */
    WEIR_DEVICE_VULKAN = 3 /**< A device with Vulkan 1.3, see weir_runtime_options.vulkan_device. */
};

/** Kinds of devices, see weir_device_info. */
enum weir_device_kind {
    WEIR_DEVICE_KIND_DISCRETE = 0,   /**< A GPU with memory of its own. */
    WEIR_DEVICE_KIND_INTEGRATED = 1, /**< A GPU that shares the processor's memory. */
    WEIR_DEVICE_KIND_VIRTUAL = 2,    /**< A GPU of a virtual machine, or what the driver calls by no other kind. */
    WEIR_DEVICE_KIND_CPU = 3         /**< The processor, also one that a Vulkan driver computes on. */
};

/** Options of weir_runtime_create.
 *  @since 1.0 */
typedef struct weir_runtime_options {
    uint32_t struct_size;   /**< sizeof this struct in the caller's build. Required. */
    uint32_t n_threads;     /**< Threads that compute, the caller's included; 1..256. 0 (default): the cores that this
                                 process may use, at most the whole ones in its container's limit (at least 1). */
    weir_alloc_fn alloc;    /**< Allocator hook; NULL (default) for the system's. Set both hooks or neither. */
    weir_free_fn free;      /**< Its counterpart. */
    void *alloc_user;       /**< Passed to both hooks. */
    weir_log_fn log;        /**< Log hook; NULL (default) for none. */
    void *log_user;         /**< Passed to the log hook. */
    int32_t log_level;      /**< Most detailed WEIR_LOG_* level wanted. Default WEIR_LOG_ERROR. */
    uint32_t reserved;      /**< 0. */
    const char *backend_dir; /**< Folder of the backend modules (libweir_cuda.so). NULL (default): that of the library
                                  itself. A relative one means the folder that is current now. It is copied, and
                                  shorter than 1024 bytes, with the current folder if it is relative. @since 1.0 */
    weir_alloc_fn device_alloc; /**< Hook for device memory (WEIR_MEMORY_DEVICE, aligned to 256); NULL (default): the
                                     backend's own. Set both hooks or neither. @since 1.0 */
    weir_free_fn device_free;   /**< Its counterpart. @since 1.0 */
    void *device_alloc_user;    /**< Passed to both device hooks. @since 1.0 */
    const char *vulkan_device;  /**< Which device WEIR_DEVICE_VULKAN is: its index (weir_device_info), or a part of its
                                     name, in any case of letters. NULL (default): a discrete GPU before an integrated
                                     one before a virtual one before a driver that computes on the processor, of equals
                                     the one with most memory. It is copied, and shorter than 256 bytes. A session on
                                     it fails with WEIR_ERR_NOT_FOUND if there is no such device, and
                                     WEIR_ERR_INVALID_ARG if several have the name. Both list the devices. A process
                                     uses one device: a session on a second one fails with WEIR_ERR_UNSUPPORTED, which
                                     names both. @since 1.1 */
    const char *cache_dir;      /**< Folder (UTF-8) for what drivers compiled, so that the first session of the next
                                     process need not wait for it: Vulkan's pipelines, one file for each device, up to
                                     128 MiB. It is made when it is needed. It and the files must belong to the user and
                                     be writable by nobody else, and a link to the folder must be the user's own too.
                                     What is damaged or of another driver is written anew, and what cannot be read or
                                     written costs time and a log line, never a session. So does a relative folder
                                     where the current one is gone.
                                     NULL (default): nothing is kept. It is copied, made absolute, and shorter than 1024
                                     bytes. @since 1.1 */
} weir_runtime_options;

/** Static initialiser of weir_runtime_options. */
#define WEIR_RUNTIME_OPTIONS_INIT { (uint32_t)sizeof(weir_runtime_options), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }

/** What a runtime holds, see weir_runtime_memory.
 *  @since 1.0 */
typedef struct weir_memory_counters {
    uint32_t struct_size;  /**< sizeof this struct in the caller's build. Required. */
    uint32_t reserved;     /**< 0. */
    uint64_t bytes;        /**< Bytes now allocated through the host hooks. */
    uint64_t peak_bytes;   /**< Highest value of bytes so far. */
    uint64_t n_allocs;     /**< Allocations made so far. */
    uint64_t n_frees;      /**< Frees made so far. */
    uint64_t device_bytes;      /**< Device memory now allocated: weights and sessions. @since 1.0 */
    uint64_t device_peak_bytes; /**< Highest value of device_bytes so far. @since 1.0 */
    uint64_t n_device_allocs;   /**< Allocations of device memory made so far. @since 1.0 */
    uint64_t n_device_frees;    /**< Frees of device memory made so far. @since 1.0 */
} weir_memory_counters;

/** Static initialiser of weir_memory_counters. */
#define WEIR_MEMORY_COUNTERS_INIT { (uint32_t)sizeof(weir_memory_counters), 0, 0, 0, 0, 0, 0, 0, 0, 0 }

/** A device of this machine, see weir_runtime_devices.
 *  @since 1.1 */
typedef struct weir_device_info {
    uint32_t struct_size;  /**< sizeof this struct in the caller's build. Required. */
    uint32_t index;        /**< Among the devices of its backend; weir_runtime_options.vulkan_device takes it. */
    int32_t backend;       /**< WEIR_DEVICE_*, never WEIR_DEVICE_AUTO: which backend has it. A GPU that two of them have
                                is listed twice. */
    int32_t kind;          /**< WEIR_DEVICE_KIND_*. */
    uint32_t is_usable;    /**< 1: sessions of this runtime may run on it, as far as can be told without opening it. 0:
                                not, see @ref why_not. */
    uint32_t reserved;     /**< 0. */
    uint64_t memory_bytes; /**< All of its memory; of a processor the machine's, or what the container may use of it. */
    char name[256];        /**< One line of UTF-8, NUL-terminated. */
    char driver[128];      /**< Likewise: the driver and its version; of the CPU the instruction set in use. */
    char why_not[512];     /**< Likewise: what it lacks; "" if it is usable. */
} weir_device_info;

/** Static initialiser of weir_device_info. */
#define WEIR_DEVICE_INFO_INIT { (uint32_t)sizeof(weir_device_info), 0, 0, 0, 0, 0, 0, "", "", "" }

/** Fill @p options with the defaults of the library that is loaded.
 *
 *  @param options     out; its first @p struct_size bytes are written
 *  @param struct_size sizeof(weir_runtime_options) in the caller's build
 *  @return WEIR_OK
 *          WEIR_ERR_INVALID_ARG  NULL, or a size below 8; nothing written
 *  @threads any thread
 *  @owner the caller
 *  @since 1.0 */
WEIR_API weir_status weir_runtime_options_init(weir_runtime_options *options, uint32_t struct_size);

/** Create a runtime and start its worker threads. The module of a device backend is loaded later, when a plan or a
 *  session first needs it.
 *
 *  @param options in, NULL for all defaults
 *  @param out     out, the handle; NULL after a failure
 *  @return WEIR_OK
 *          WEIR_ERR_INVALID_ARG    NULL @p out, a bad struct_size, n_threads above 256, an unknown log_level, a
 *                                  backend_dir, cache_dir or vulkan_device that is too long, an alloc hook without its
 *                                  free hook or vice versa
 *          WEIR_ERR_IO             a relative backend_dir, and the current folder is gone
 *          WEIR_ERR_UNSUPPORTED    @p options has fields that this version does not know, or reserved is not 0
 *          WEIR_ERR_OUT_OF_MEMORY  memory or threads could not be had
 *  @threads any thread
 *  @owner the caller; weir_runtime_destroy
 *  @since 1.0 */
WEIR_API weir_status weir_runtime_create(const weir_runtime_options *options, weir_runtime **out);

/** Give up the caller's reference. Models and sessions of the runtime keep it alive until they are gone.
 *
 *  @param runtime in, NULL is allowed
 *  @return nothing
 *  @threads any thread, once per handle
 *  @owner ends the caller's ownership
 *  @since 1.0 */
WEIR_API void weir_runtime_destroy(weir_runtime *runtime);

/** Memory that the runtime and everything made from it have allocated, on the host and on devices. Mapped model files
 *  are not included, copied ones are.
 *
 *  @param runtime  in
 *  @param counters in/out, struct_size set by the caller
 *  @return WEIR_OK
 *          WEIR_ERR_INVALID_ARG  NULL or a bad struct_size; nothing written
 *  @threads any thread
 *  @owner the caller owns @p counters
 *  @since 1.0 */
WEIR_API weir_status weir_runtime_memory(const weir_runtime *runtime, weir_memory_counters *counters);

/** Number of threads that compute, the caller's included.
 *
 *  @param runtime in
 *  @return 1..256, or 0 when @p runtime is NULL
 *  @threads any thread
 *  @owner nothing is owned
 *  @since 1.0 */
WEIR_API uint32_t weir_runtime_thread_count(const weir_runtime *runtime);

/** Name of the CPU instruction set in use, such as "AVX3_DL" or "NEON".
 *
 *  @param runtime in
 *  @return a static string; "" when @p runtime is NULL
 *  @threads any thread
 *  @owner the library; valid until it is unloaded
 *  @since 1.0 */
WEIR_API const char *weir_runtime_cpu_target(const weir_runtime *runtime);

/** The devices of this machine, usable or not: the CPU, then those of CUDA and of Vulkan, by index. Opens none. The
 *  modules of both backends are loaded; the devices of one that is missing or finds no driver are not in the list, and
 *  an information line of the log says why.
 *
 *  @param runtime   in
 *  @param devices   in/out, [capacity]; may be NULL when @p capacity is 0. The caller sets struct_size of the first,
 *                   which all have; the library sets it in the others
 *  @param capacity  entries at @p devices
 *  @param n_devices out, length of the list, also when it did not fit
 *  @return WEIR_OK
 *          WEIR_ERR_INVALID_ARG       NULL, or a struct_size that is bad or no multiple of 8; nothing written
 *          WEIR_ERR_BUFFER_TOO_SMALL  @p n_devices is set, @p devices untouched
 *  @threads any thread
 *  @owner the caller owns the buffer
 *  @since 1.1 */
WEIR_API weir_status weir_runtime_devices(const weir_runtime *runtime, weir_device_info *devices, uint32_t capacity,
                                          uint32_t *n_devices);

#ifdef __cplusplus
}
#endif
#endif /* WEIR_RUNTIME_H */
