#!/bin/sh
# Installs into an empty folder and uses the result as a stranger would: a CMake project with find_package(weir), a
# compiler with pkg-config, and the weir program. The folder is moved before use: an installation must not know where it
# was made.
# Usage: outside_project.sh BUILD_FOLDER SOURCE_FOLDER CMAKE TINY_MODEL. CC names the C compiler.
set -eu
build=$1 source=$2 cmake=$3 model=$4
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

"$cmake" --install "$build" --prefix "$work/first" --strip >"$work/install.log"
mv "$work/first" "$work/prefix"
prefix=$work/prefix
libdir=$(dirname "$(find "$prefix" -name libweir.so)")
for file in "$libdir/libweir.so.1" "$libdir/pkgconfig/weir.pc" "$libdir/cmake/weir/weirConfig.cmake" \
    "$prefix/include/weir/weir.h" "$prefix/bin/weir"; do
    [ -e "$file" ] || { echo "not installed: ${file#"$prefix"/}"; exit 1; }
done
if grep -rlF -e "$source/" -e "$work/first" "$prefix"; then
    echo "these installed files hold a path of the build"
    exit 1
fi

echo "== CMake project"
"$cmake" -S "$source/tests/install/outside" -B "$work/outside" -DCMAKE_PREFIX_PATH="$prefix" \
    -DCMAKE_C_COMPILER="${CC:-cc}" >"$work/outside.log" 2>&1 &&
    "$cmake" --build "$work/outside" >>"$work/outside.log" 2>&1 || { cat "$work/outside.log"; exit 1; }
"$work/outside/outside" "$model"

echo "== compiler and pkg-config"
PKG_CONFIG_PATH=$libdir/pkgconfig
export PKG_CONFIG_PATH
version=$(sed -n 's/^#define WEIR_VERSION_M[A-Z]* \([0-9]*\).*/\1/p' "$prefix/include/weir/base.h" | paste -sd.)
pkg-config --atleast-version="$version" weir
"${CC:-cc}" "$source/samples/01_hello.c" $(pkg-config --cflags --libs weir) -o "$work/hello"
LD_LIBRARY_PATH=$libdir "$work/hello" "$model"

echo "== the weir program"
"$prefix/bin/weir" info -m "$model"
(cd / && "$prefix/bin/weir" demo --steps 20 --threads 1)  # with the model that was installed

echo "== the weir program without its model"
rm "$prefix/share/weir/weir-tiny-reasoner-q8_0.gguf"
if (cd / && "$prefix/bin/weir" demo --steps 20) 2>"$work/demo.err"; then
    echo "weir demo runs without a model"
    exit 1
fi
grep -q "samples/models.*-m FILE" "$work/demo.err" || { echo "no help: $(cat "$work/demo.err")"; exit 1; }

if [ -e "$build/lib/libweir_cuda.so" ]; then
    echo "== the CUDA backend"
    answer=$("$prefix/bin/weir" plan -m "$model" --device cuda 2>&1) || true
    case $answer in
    *"no backend module"* | *"of this build"*) echo "the installed module was not loaded: $answer"; exit 1 ;;
    *) echo "$answer" | tail -n 1 ;;
    esac
fi
