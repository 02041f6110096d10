#!/bin/sh
# Files that need the C library alone (cmake/WeirSelfContained.cmake): of other libraries only Weir's own, of glibc no
# newer version than 2.28, and no function that has no version. Prints what they need.
# Usage: needs.sh FILE...
set -eu
floor=2.28
fail() { echo "$*"; exit 1; }
LC_ALL=C
export LC_ALL
for file in "$@"; do
    needed=$(readelf -d "$file" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p')
    foreign=$(echo "$needed" | grep -vE '^(libc\.so\.6|libm\.so\.6|ld-linux-[a-z0-9_-]*\.so\.[0-9]|libweir\.so\.1)$') ||
        true
    [ -z "$foreign" ] || fail "$file needs $foreign"
    undefined=$("${NM:-nm}" -D --undefined-only "$file" | awk '{ print $NF }')
    # These have no version: what the compiler's start files ask of nobody, and what old_glibc.cpp finds in libc's
    # versions of before 2.34 only.
    strange=$(echo "$undefined" | grep -vE '@(GLIBC|WEIR)_[0-9.]+$' |
        grep -vE '^(_ITM_(de)?registerTMCloneTable|__gmon_start__|__libc_dlopen_mode|__libc_dlsym)$') || true
    [ -z "$strange" ] || fail "$file asks for $strange"
    newest=$(echo "$undefined" | sed -n 's/.*@GLIBC_//p' | sort -V | tail -n 1)
    # The floor is that of x86-64; elsewhere it is the version that the files were built with.
    [ "$(uname -m)" != x86_64 ] || [ "$(printf '%s\n' "$newest" $floor | sort -V | tail -n 1)" = $floor ] ||
        fail "$file needs glibc $newest, not $floor: $(echo "$undefined" | grep "@GLIBC_$newest\$")"
    echo "$(basename "$file") needs" $needed "glibc $newest"
done
