/* Memory hooks of an application, for the test of RuntimeOptions.Alloc: they count, and refuse when they are told. */
#include <stdatomic.h>
#include <stdlib.h>
#include <weir/weir.h>

typedef struct hooks_state {
    atomic_llong live;
    atomic_int refuses;
} hooks_state;

weir_status hooks_alloc(void *user, const weir_alloc_info *info, void **out) {
    hooks_state *state = user;
    if (atomic_load(&state->refuses)) return WEIR_ERR_OUT_OF_MEMORY;
    const uint64_t alignment = info->alignment < sizeof(void *) ? sizeof(void *) : info->alignment;
    *out = aligned_alloc(alignment, (info->bytes + alignment - 1) / alignment * alignment);
    if (*out) atomic_fetch_add(&state->live, (long long)info->bytes);
    return *out ? WEIR_OK : WEIR_ERR_OUT_OF_MEMORY;
}

weir_status hooks_free(void *user, const weir_alloc_info *info) {
    hooks_state *state = user;
    atomic_fetch_sub(&state->live, (long long)info->bytes);
    free(info->ptr);
    return WEIR_OK;
}
