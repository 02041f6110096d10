#!/bin/sh
# The package (cmake/package): the same bytes when the same files are packed again at another time by another user, and
# all that it should have in it. Unpacked anywhere, it serves a C and a C++ compiler, pkg-config and CMake, and its
# program runs.
# Usage: package.sh BUILD_FOLDER SOURCE_FOLDER CMAKE [PACKAGE]: with a package it is not packed first. CC and CXX name
# the compilers.
set -eu
build=$1 source=$2 cmake=$3 package=${4:-}
command -v zstd >/dev/null || { echo "skipped: zstd is not installed (Debian's package zstd)"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "$*"; exit 1; }
# Neither the installed Weir nor the packages that Weir was built with.
unset PKG_CONFIG_PATH CMAKE_PREFIX_PATH LD_LIBRARY_PATH || true

if [ -z "$package" ]; then
    echo "== packing twice"
    ZSTD_CLEVEL=1
    export ZSTD_CLEVEL
    package=$("$source/cmake/package" "$build" "$work/first")
    again=$(umask 077 && TMPDIR=$work TZ=Asia/Tokyo LANG=C.UTF-8 "$source/cmake/package" "$build" "$work/second")
    cmp "$package" "$again" || fail "the same files make different packages"
fi
echo "$(basename "$package"): $(wc -c <"$package") bytes"

echo "== what is in it"
mkdir "$work/somewhere else"
zstd -dc "$package" | (cd "$work/somewhere else" && tar -x)
prefix="$work/somewhere else/$(basename "$package" .tar.zst)"
for file in include/weir/weir.h lib/libweir.so lib/libweir.so.1 lib/pkgconfig/weir.pc lib/cmake/weir/weirConfig.cmake \
    bin/weir share/weir/weir-tiny-reasoner-q8_0.gguf share/licenses/weir/LICENSE; do
    [ -e "$prefix/$file" ] || fail "there is no $file in it"
done
for file in lib/libweir.a lib/libweir_cuda.so lib/libweir_vulkan.so; do
    [ ! -e "$build/$file" ] || [ -e "$prefix/$file" ] || fail "there is no $file in it, which is built"
done
if grep -rlF -e "$source/" -e "$build/" "$prefix"; then fail "these files hold a path of the build"; fi
if grep -q '^WEIR_SELF_CONTAINED:BOOL=ON' "$build/CMakeCache.txt"; then
    sh "$source/tests/install/needs.sh" "$prefix"/lib/*.so "$prefix/bin/weir"
fi
for file in "$prefix"/lib/libweir_*.so; do
    [ -e "$file" ] || continue
    names=$("${NM:-nm}" -D --defined-only "$file" | awk '{ print $NF }')
    [ "$names" = weir_device_module ] || fail "$(basename "$file") exports" $names
done
model=$prefix/share/weir/weir-tiny-reasoner-q8_0.gguf

echo "== in C and in C++, with pkg-config"
PKG_CONFIG_LIBDIR=$prefix/lib/pkgconfig
export PKG_CONFIG_LIBDIR
main=$source/tests/install/outside/main.c
eval "\"${CC:-cc}\" \"$main\" $(pkg-config --cflags --libs weir) -o \"$work/in_c\""
eval "\"${CXX:-c++}\" -x c++ \"$main\" $(pkg-config --cflags --libs weir) -o \"$work/in_cxx\""
for program in in_c in_cxx; do LD_LIBRARY_PATH=$prefix/lib "$work/$program" "$model"; done

echo "== in CMake"
"$cmake" -S "$source/tests/install/outside" -B "$work/outside" -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_BUILD_TYPE=Debug \
    -DCMAKE_C_COMPILER="${CC:-cc}" -DCMAKE_CXX_COMPILER="${CXX:-c++}" >"$work/log" 2>&1 &&
    "$cmake" --build "$work/outside" >>"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
for program in "$work"/outside/outside*; do
    [ ! -f "$program" ] || [ ! -x "$program" ] || "$program" "$model"
done

echo "== the program"
(cd / && "$prefix/bin/weir" demo --steps 20 --budget 256 --go-on 0 --threads 1) >"$work/log" ||
    { cat "$work/log"; exit 1; }
tail -n 1 "$work/log"
