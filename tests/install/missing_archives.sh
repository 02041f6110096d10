#!/bin/sh
# Without the static libraries that self-contained files are made of, asking for such files is an error that names them
# and their packages; not asking builds everything else.
# Usage: missing_archives.sh SOURCE_FOLDER CMAKE. CC and CXX name the compilers.
set -eu
source=$1 cmake=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "$*"; cat "$work/log"; exit 1; }
# Where CMake would find them; their shared libraries are found by pkg-config.
folders=
for module in libzstd libpcre2-8; do
    folder=$(pkg-config --variable=libdir $module)
    folders="$folders$folder;$(cd "$folder" && pwd -P);/lib/$(basename "$folder");"
done
configure() {
    rm -rf "$work/build"
    CC=${CC:-cc} CXX=${CXX:-c++} "$cmake" -S "$source" -B "$work/build" -DCMAKE_BUILD_TYPE=Release \
        -DWEIR_BUILD_TESTS=OFF -DWEIR_BUILD_SAMPLES=OFF -DWEIR_CUDA=OFF -DWEIR_VULKAN=OFF \
        -DCMAKE_IGNORE_PATH="$folders" "$@" >"$work/log" 2>&1
}
if configure -DWEIR_SELF_CONTAINED=ON; then fail "it was configured without libzstd.a"; fi
for words in libpcre2-8.a libpcre2-dev libzstd.a libzstd-dev WEIR_SELF_CONTAINED=OFF; do
    grep -q "$words" "$work/log" || fail "the error does not say $words"
done
configure -DWEIR_SELF_CONTAINED=OFF || fail "it is not configured without libzstd.a"
grep -q "self-contained files left out, no .*libzstd.a" "$work/log" || fail "it does not say what is left out"
"$cmake" --build "$work/build" --target help >"$work/log"
grep -q weir_static "$work/log" && fail "there is a target for libweir.a"
grep -qw weir "$work/log" || fail "there is no target for libweir.so"
echo "named what is missing, and did without"
