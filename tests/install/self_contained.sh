#!/bin/sh
# The libweir.so that has all that it is made of (cmake/WeirSelfContained.cmake): it needs the C library alone, of no
# newer version than 2.28, exports the public functions and nothing of its parts, stays small, throws nothing at others
# and bears what they throw, and leaves nothing when it is unloaded.
# Usage: self_contained.sh LIBRARY SOURCE_FOLDER CORE_ARCHIVE UNLOAD_PROGRAM MODEL
# CC, CXX, NM and STRIP name the tools.
set -eu
library=$1 source=$2 core=$3 unload=$4 model=$5
floor=2.28 limit=5000000
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "$*"; exit 1; }
LC_ALL=C
export LC_ALL

echo "== what it needs"
readelf -d "$library" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' >"$work/needed"
foreign=$(grep -vE '^(libc\.so\.6|libm\.so\.6|ld-linux-[a-z0-9_-]*\.so\.[0-9])$' "$work/needed") || true
echo $(cat "$work/needed")
[ -z "$foreign" ] || fail "it needs $foreign"
# Of no version: what the compiler's start files ask of nobody.
"${NM:-nm}" -D --undefined-only "$library" | awk '{ print $NF }' >"$work/undefined"
grep -vE '@GLIBC_[0-9.]+$' "$work/undefined" | grep -vE '^(_ITM_(de)?registerTMCloneTable|__gmon_start__)$' \
    >"$work/strange" || true
[ ! -s "$work/strange" ] || fail "it asks for $(cat "$work/strange")"
newest=$(sed -n 's/.*@GLIBC_//p' "$work/undefined" | sort -V | tail -n 1)
echo "glibc $newest"
# The floor is that of x86-64; elsewhere it is the version that the library was built with.
[ "$(uname -m)" != x86_64 ] || [ "$(printf '%s\n' "$newest" $floor | sort -V | tail -n 1)" = $floor ] ||
    fail "newer than $floor: $(grep "@GLIBC_$newest" "$work/undefined")"

echo "== what it exports"
sh "$source/tests/abi/symbols.sh" "$library" "$source/docs/abi/symbols.txt" "$source/include/weir"

echo "== what it calls"
sh "$source/tests/abi/forbidden_calls.sh" "$library" "$core"

echo "== its size"
"${STRIP:-strip}" --strip-unneeded -o "$work/libweir.so.1" "$library"
bytes=$(wc -c <"$work/libweir.so.1")
echo "stripped: $bytes bytes, limit $limit"
[ "$bytes" -le $limit ] || fail "too large"

echo "== a C program, linked by a C compiler"
ln -s libweir.so.1 "$work/libweir.so"
"${CC:-cc}" -O1 -I"$source/include" "$source/tests/install/outside/main.c" -L"$work" -lweir \
    -Wl,-rpath,"$work" -o "$work/program"
"$work/program" "$model"

echo "== callbacks that throw"
"${CXX:-c++}" -O1 -I"$source/include" "$source/tests/install/throwing.cpp" -L"$work" -lweir -Wl,-rpath,"$work" \
    -o "$work/throwing"
"$work/throwing" "$model"
"${CXX:-c++}" -O1 -I"$source/include" "$source/tests/install/throwing.cpp" -L"$work" -lweir -Wl,-rpath,"$work" \
    -static-libstdc++ -static-libgcc -o "$work/throwing_static"
"$work/throwing_static" "$model" static

echo "== loading and unloading"
WEIR_TEST_LIBRARY=$work/libweir.so.1 "$unload"
