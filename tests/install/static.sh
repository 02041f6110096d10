#!/bin/sh
# libweir.a (cmake/WeirStatic.cmake): its global symbols are the public functions, it asks for nothing but the C
# library, a C compiler links it without any other library of Weir's parts, a program may have such parts of its own,
# and callbacks may throw.
# Usage: static.sh ARCHIVE SOURCE_FOLDER MODEL [FLAG...]. CC, CXX and NM name the tools; the flags are those that
# weir.pc gives to a static link.
set -eu
archive=$1 source=$2 model=$3
shift 3
[ $# -gt 0 ] || set -- -lm -ldl -lpthread -Wl,--eh-frame-hdr
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "$*"; exit 1; }
LC_ALL=C
export LC_ALL

echo "== its symbols"
grep '^weir_' "$source/docs/abi/symbols.txt" | sort >"$work/public"
"${NM:-nm}" --extern-only --defined-only "$archive" 2>/dev/null | awk 'NF == 3 { print $3 }' | sort >"$work/defined"
diff "$work/public" "$work/defined" || fail "more or fewer than docs/abi/symbols.txt"
# Nothing of C++, the unwinder and the parts is left to find.
"${NM:-nm}" --undefined-only "$archive" 2>/dev/null | awk '{ print $NF }' |
    grep -E '^(_Z|_Unwind_|__gxx_|__cxa_|ZSTD_|pcre2_|_pcre2_|calloc$|__wrap_|__libc_single_threaded|_dl_find_object)' |
    grep -vx __cxa_atexit >"$work/foreign" || true
[ ! -s "$work/foreign" ] || fail "it asks for $(cat "$work/foreign")"
echo "$(wc -l <"$work/defined") public functions, $(wc -c <"$archive") bytes"

echo "== a C program, linked by a C compiler"
main=$source/tests/install/outside/main.c
"${CC:-cc}" -O1 -DWEIR_STATIC -I"$source/include" "$main" "$archive" "$@" -o "$work/program"
"$work/program" "$model"
foreign=$(readelf -d "$work/program" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' |
    grep -vE '^(libc\.so\.6|libm\.so\.6|libdl\.so\.2|libpthread\.so\.0|ld-linux-[a-z0-9_-]*\.so\.[0-9])$') || true
[ -z "$foreign" ] || fail "the program needs $foreign"

echo "== a C program that has such parts, too"
"${CC:-cc}" -O1 -w -DWEIR_STATIC -I"$source/include" "$main" "$source/tests/install/own_parts.c" "$archive" "$@" \
    -o "$work/program"
"$work/program" "$model"

echo "== a program without any shared library"
"${CC:-cc}" -O1 -static -DWEIR_STATIC -I"$source/include" "$main" "$archive" "$@" -o "$work/program" \
    2>"$work/warnings" || { cat "$work/warnings"; exit 1; }
"$work/program" "$model"

echo "== callbacks that throw"
"${CXX:-c++}" -O1 -DWEIR_STATIC -I"$source/include" "$source/tests/install/throwing.cpp" "$archive" "$@" \
    -o "$work/throwing"
"$work/throwing" "$model"
