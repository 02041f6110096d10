#!/bin/sh
# The libweir.so that has all that it is made of (cmake/WeirSelfContained.cmake): it needs the C library alone, of no
# newer version than 2.28, exports the public functions and nothing of its parts, stays small, throws nothing at others
# and bears what they throw, and leaves nothing when it is unloaded.
# Usage: self_contained.sh LIBRARY SOURCE_FOLDER CORE_ARCHIVE UNLOAD_PROGRAM MODEL
# CC, CXX, NM and STRIP name the tools.
set -eu
library=$1 source=$2 core=$3 unload=$4 model=$5
limit=5000000
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "$*"; exit 1; }
LC_ALL=C
export LC_ALL

echo "== what it needs"
sh "$source/tests/install/needs.sh" "$library"

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
