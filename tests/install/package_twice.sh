#!/bin/sh
# ./dev package in two folders with other paths, without a compiler's cache: the same bytes, and the package is of use.
# With the CPU kernels of one instruction set and, where there is an nvcc, the CUDA module of one architecture, which is
# what can be compiled twice in a test.
# Usage: package_twice.sh SOURCE_FOLDER
set -eu
source=$1
command -v zstd >/dev/null || { echo "skipped: zstd is not installed (Debian's package zstd)"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
arch=none
if command -v nvcc >/dev/null || ls "${XDG_CACHE_HOME:-$HOME/.cache}"/weir-cuda/*/toolkit/bin/nvcc >/dev/null 2>&1; then
    arch=90-real
fi
CCACHE_DISABLE=1 SOURCE_DATE_EPOCH=1700000000 ZSTD_CLEVEL=3
export CCACHE_DISABLE SOURCE_DATE_EPOCH ZSTD_CLEVEL
for folder in one another/one; do
    mkdir -p "$work/$folder"
    (cd "$source" && git ls-files -z | tar --null -T - -cf -) | (cd "$work/$folder" && tar -xf -)
    "$work/$folder/dev" package $arch -DWEIR_CPU_TARGETS=best
done
name=$(cd "$work/one/build-package" && ls weir-*.tar.zst)
cmp "$work/one/build-package/$name" "$work/another/one/build-package/$name" || {
    for folder in one another/one; do
        mkdir "$work/$folder/unpacked"
        zstd -dc "$work/$folder/build-package/$name" | (cd "$work/$folder/unpacked" && tar -x)
    done
    diff -r "$work/one/unpacked" "$work/another/one/unpacked"
    exit 1
}
sh "$source/tests/install/package.sh" "$work/one/build-package" "$work/one" cmake "$work/one/build-package/$name"
