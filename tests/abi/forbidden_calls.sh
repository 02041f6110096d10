#!/bin/sh
# The process that hosts the library survives it: libweir.so calls nothing that ends the process, prints, reads the
# environment or installs signal handlers; it takes no heap memory but through the allocator hooks (malloc and
# aligned_alloc are their default); it brings no thread runtime.
# Usage: forbidden_calls.sh LIBRARY [ARCHIVE]. With an archive of Weir's own code it is a library that the C++ runtime
# is a part of, some of whose functions end the process or word errors; then the archive tells what Weir calls.
set -u
library=$1
archive=${2:-}
forbidden='exit _exit _Exit quick_exit abort __assert_fail getenv secure_getenv setenv printf __printf_chk fprintf
__fprintf_chk vprintf vfprintf puts fputs putchar fputc perror strerror signal sigaction system popen stdout stderr
_ZSt4cout _ZSt4cerr _ZSt4clog
_Znwm _Znam _ZnwmSt11align_val_t _ZnamSt11align_val_t _ZnwmRKSt9nothrow_t calloc realloc strdup posix_memalign
_ZNSt3pmr20get_default_resourceEv _ZNSt3pmr19new_delete_resourceEv'
# among NAMES: those of the symbols on the input that are among these
among() {
    awk -v names="$1" '
    BEGIN { n = split(names, list); for (i = 1; i <= n; i++) bad[list[i]] = 1 }
    { name = $NF; sub(/@.*/, "", name); if (name in bad) print name }'
}
found=$("${NM:-nm}" -D --undefined-only "$library" | among "$forbidden")
if [ -n "$archive" ]; then
    [ -s "$archive" ] || { echo "there is no $archive"; exit 1; }
    found="$(echo "$found" | grep -vxE 'abort|__assert_fail|strerror')
$("${NM:-nm}" --undefined-only "$archive" 2>/dev/null | among "$forbidden" | sort -u)"
fi
needed=$(LC_ALL=C readelf -d "$library" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p')
foreign=$(echo "$needed" |
    grep -vE '^(libhwy|libpcre2-8|libzstd|libstdc\+\+|libgcc_s|libm|libc|libpthread|ld-linux[a-z0-9_-]*)\.so')
echo "needs: $(echo $needed)"
found=$(echo $found)
[ -n "$found" ] && echo "the library calls: $found"
[ -n "$foreign" ] && echo "the library needs more than its documented dependencies: $(echo $foreign)"
[ -z "$found" ] && [ -z "$foreign" ]
