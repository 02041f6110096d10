// What page_codec.cpp never uses of a libzstd.a that is linked in, 370 KB: all searches but that of the fast strategy,
// and the formats of before Zstandard 0.8. The linker takes an object of the archive only for names that nothing else
// has, so these stand for theirs; weak, because a version of Zstandard that has more such functions brings the whole
// object, whose definitions then count. Should one be called after all, it does what it may do: a search finds nothing,
// a format is unknown.
#define ZSTD_STATIC_LINKING_ONLY
#include <zstd.h>
#include <zstd_errors.h>

#include <cstdint>

#define WEIR_WEAK extern "C" __attribute__((weak))

// A search returns how many bytes at the end of the block it found no match for.
#define NO_SEARCH(name)                                                          \
  WEIR_WEAK size_t name(void*, void*, uint32_t[3], const void*, size_t n_bytes); \
  WEIR_WEAK size_t name(void*, void*, uint32_t[3], const void*, size_t n_bytes) { return n_bytes; }
#define NO_SEARCH_ROWS(name) NO_SEARCH(name) NO_SEARCH(name##_row)
#define NO_LAZY_SEARCH(name)                 \
  NO_SEARCH_ROWS(name)                       \
  NO_SEARCH_ROWS(name##_dictMatchState)      \
  NO_SEARCH_ROWS(name##_dedicatedDictSearch) \
  NO_SEARCH_ROWS(name##_extDict)
#define NO_OTHER_SEARCH(name) NO_SEARCH(name) NO_SEARCH(name##_dictMatchState) NO_SEARCH(name##_extDict)
NO_LAZY_SEARCH(ZSTD_compressBlock_greedy)
NO_LAZY_SEARCH(ZSTD_compressBlock_lazy)
NO_LAZY_SEARCH(ZSTD_compressBlock_lazy2)
NO_OTHER_SEARCH(ZSTD_compressBlock_btlazy2)
NO_OTHER_SEARCH(ZSTD_compressBlock_btopt)
NO_OTHER_SEARCH(ZSTD_compressBlock_btultra)
NO_SEARCH(ZSTD_compressBlock_btultra2)
NO_OTHER_SEARCH(ZSTD_compressBlock_doubleFast)

// Their tables stay empty.
#define NO_TABLE(name)   \
  WEIR_WEAK void name(); \
  WEIR_WEAK void name() {}
NO_TABLE(ZSTD_dedicatedDictSearch_lazy_loadDictionary)
NO_TABLE(ZSTD_row_update)
NO_TABLE(ZSTD_updateTree)
NO_TABLE(ZSTD_fillDoubleHashTable)
WEIR_WEAK uint32_t ZSTD_insertAndFindFirstIndex();
WEIR_WEAK uint32_t ZSTD_insertAndFindFirstIndex() { return 0; }

#define UNKNOWN_FORMAT(name) \
  WEIR_WEAK size_t name();   \
  WEIR_WEAK size_t name() { return size_t{0} - ZSTD_error_prefix_unknown; }
#define NO_CONTEXT(name)  \
  WEIR_WEAK void* name(); \
  WEIR_WEAK void* name() { return nullptr; }
#define OLD_FORMAT(v)                                                                                                 \
  NO_CONTEXT(ZBUFF##v##_createDCtx)                                                                                   \
  UNKNOWN_FORMAT(ZBUFF##v##_decompressContinue)                                                                       \
  UNKNOWN_FORMAT(ZBUFF##v##_decompressInitDictionary)                                                                 \
  UNKNOWN_FORMAT(ZBUFF##v##_freeDCtx)                                                                                 \
  NO_CONTEXT(ZSTD##v##_createDCtx)                                                                                    \
  UNKNOWN_FORMAT(ZSTD##v##_decompress_usingDict)                                                                      \
  UNKNOWN_FORMAT(ZSTD##v##_freeDCtx)                                                                                  \
  UNKNOWN_FORMAT(ZSTD##v##_getFrameParams)                                                                            \
  WEIR_WEAK void ZSTD##v##_findFrameSizeInfoLegacy(const void*, size_t, size_t* frame_bytes, unsigned long long* n);  \
  WEIR_WEAK void ZSTD##v##_findFrameSizeInfoLegacy(const void*, size_t, size_t* frame_bytes, unsigned long long* n) { \
    *frame_bytes = size_t{0} - ZSTD_error_prefix_unknown;                                                             \
    *n = ZSTD_CONTENTSIZE_ERROR;                                                                                      \
  }
OLD_FORMAT(v05)
OLD_FORMAT(v06)
OLD_FORMAT(v07)
