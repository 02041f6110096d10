#!/bin/sh
# Installs into an empty folder and uses the result as a stranger would: a CMake project with find_package(weir), a
# compiler with pkg-config, and the weir program. The folder is moved before use: an installation must not know where it
# was made. Then the same from a build of which only a part was built, and each component by itself.
# Usage: outside_project.sh BUILD_FOLDER SOURCE_FOLDER CMAKE TINY_MODEL. CC and CXX name the compilers.
set -eu
build=$1 source=$2 cmake=$3 model=$4
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "$*"; exit 1; }

"$cmake" --install "$build" --prefix "$work/first" --strip >"$work/install.log"
mv "$work/first" "$work/prefix"
prefix=$work/prefix
libdir=$(dirname "$(find "$prefix" -name libweir.so)")
for file in "$libdir/libweir.so.1" "$libdir/pkgconfig/weir.pc" "$libdir/cmake/weir/weirConfig.cmake" \
    "$prefix/include/weir/weir.h" "$prefix/bin/weir"; do
    [ -e "$file" ] || fail "not installed: ${file#"$prefix"/}"
done
if grep -rlF -e "$source/" -e "$work/first" "$prefix"; then fail "these installed files hold a path of the build"; fi

echo "== licences"
licences=$prefix/share/licenses/weir
cmp "$source/LICENSE" "$licences/LICENSE"
# licence_of NAME HEADER WORDS: where the header's package is Debian's, its text is here.
licence_of() {
    debian=$(dpkg -S "$2" 2>/dev/null | sed 's/:.*//') || true
    [ -n "$debian" ] && [ -e "/usr/share/doc/$debian/copyright" ] || { echo "$1 is not Debian's"; return; }
    grep -q "$3" "$licences/$1.txt" || fail "no licence of $1"
}
licence_of highway /usr/include/hwy/highway.h "Apache"
licence_of xxhash /usr/include/xxhash.h "BSD"
licence_of cli11 /usr/include/CLI/CLI.hpp "BSD"
licence_of nlohmann-json /usr/include/nlohmann/json.hpp "Niels Lohmann"
# Zstandard's, where its code is in the library; a shared one is what the library needs.
readelf -d "$libdir/libweir.so" | grep -q 'NEEDED.*libzstd' || licence_of zstandard /usr/include/zstd.h "BSD"

# Those of what is inside of libweir.a.
if [ -e "$libdir/libweir.a" ]; then
    licence_of pcre2 /usr/include/pcre2.h "PCRE2"
    grep -q "GCC RUNTIME LIBRARY EXCEPTION" "$licences/libstdc++.txt" || fail "no licence of libstdc++"
fi

outside_project() {
    rm -rf "$work/outside"
    "$cmake" -S "$source/tests/install/outside" -B "$work/outside" -DCMAKE_PREFIX_PATH="$1" -DCMAKE_BUILD_TYPE=Debug \
        -DCMAKE_C_COMPILER="${CC:-cc}" -DCMAKE_CXX_COMPILER="${CXX:-c++}" -Doutside_version="$2" \
        >"$work/outside.log" 2>&1 && "$cmake" --build "$work/outside" >>"$work/outside.log" 2>&1
}
echo "== CMake project, in C and in C++"
version=$(sed -n 's/^#define WEIR_VERSION_M[A-Z]* \([0-9]*\).*/\1/p' "$prefix/include/weir/base.h" | paste -sd.)
newest=$(grep -rhoE '@since +[0-9.]+[0-9]' "$prefix/include" | sed 's/@since *//' | sort -V | tail -n 1)
outside_project "$prefix" "$newest" || { cat "$work/outside.log"; exit 1; }
"$work/outside/outside" "$model"
"$work/outside/outside_cxx" "$model"
if [ -e "$libdir/libweir.a" ]; then
    "$work/outside/outside_static" "$model"
    if readelf -d "$work/outside/outside_static" | grep -q "NEEDED.*libweir"; then
        fail "weir::weir_static is shared"
    fi
fi
if outside_project "$prefix" "${version%.*}.$((${version#*.} + 1))"; then fail "a newer version was found"; fi

echo "== compiler and pkg-config, without the packages that Weir was built with"
PKG_CONFIG_LIBDIR=$libdir/pkgconfig
export PKG_CONFIG_LIBDIR
unset PKG_CONFIG_PATH
pkg-config --atleast-version="$version" weir
flags=$(pkg-config --cflags --libs weir)
echo "$flags" | sed "s|$prefix|PREFIX|g"
for flag in $flags; do
    case $flag in
    -I*/include | -L*/lib* | -lweir) ;;
    *) fail "weir.pc leaks $flag" ;;
    esac
done
# shellcheck disable=SC2086
"${CC:-cc}" "$source/samples/01_hello.c" $flags -o "$work/hello"
LD_LIBRARY_PATH=$libdir "$work/hello" "$model"
if [ -e "$libdir/libweir.a" ]; then
    echo "== the same, without shared libraries"
    # shellcheck disable=SC2046
    "${CC:-cc}" -static "$source/samples/01_hello.c" $(pkg-config --static --cflags --libs weir) -o "$work/hello" \
        2>"$work/warnings" || { cat "$work/warnings"; exit 1; }  # glibc warns of dlopen
    "$work/hello" "$model"
fi

echo "== the weir program"
"$prefix/bin/weir" info -m "$model"
(cd / && "$prefix/bin/weir" demo --steps 20 --budget 256 --go-on 0 --threads 1)  # with the model that was installed

echo "== the weir program without its model"
rm "$prefix/share/weir/weir-tiny-reasoner-q8_0.gguf"
if (cd / && "$prefix/bin/weir" demo --steps 20) 2>"$work/demo.err"; then fail "weir demo runs without a model"; fi
grep -q "samples/models.*-m FILE" "$work/demo.err" || fail "no help: $(cat "$work/demo.err")"

if [ -e "$build/lib/libweir_cuda.so" ]; then
    echo "== the CUDA backend"
    answer=$("$prefix/bin/weir" plan -m "$model" --device cuda 2>&1) || true
    case $answer in
    *"no backend module"* | *"of this build"*) fail "the installed module was not loaded: $answer" ;;
    *) echo "$answer" | tail -n 1 ;;
    esac
fi

# The build's installation script in another folder, with files of the build beside it: what was built is what is there.
partial=$work/partial
mkdir -p "$partial/lib" "$partial/bin"
(cd "$build" && find . -name cmake_install.cmake) | while read -r script; do
    mkdir -p "$partial/$(dirname "$script")"
    sed "/OLD_RPATH/!s|$build/|$partial/|g" "$build/$script" >"$partial/$script"
done
mkdir -p "$partial/CMakeFiles"
cp -R "$build/CMakeFiles/Export" "$partial/CMakeFiles/"
cp "$build"/weirConfig*.cmake "$build/weir.pc" "$partial/"
# files_in PREFIX: sorted, without the folders and without versions that follow libweir.so.1
files_in() { (cd "$1" && find . ! -type d | sed 's|^\./||; /libweir\.so\.1\./d' | LC_ALL=C sort); }
expect() { [ "$(files_in "$1")" = "$2" ] || { files_in "$1"; fail "expected: $2"; }; }
library=$(basename "$libdir")

echo "== nothing is built"
if "$cmake" --install "$partial" --prefix "$work/none" >"$work/none.log" 2>&1; then fail "installed nothing"; fi
grep -q -- '--target weir$' "$work/none.log" || { cat "$work/none.log"; fail "no help"; }
[ ! -e "$work/none" ] || fail "half an installation: $(find "$work/none")"

echo "== the library alone is built"
cp -P "$build"/lib/libweir.so* "$partial/lib/"
[ ! -e "$build/lib/libweir.a" ] || cp "$build/lib/libweir.a" "$partial/lib/"
"$cmake" --install "$partial" --prefix "$work/alone" >"$work/alone.log" || { cat "$work/alone.log"; exit 1; }
for file in bin/weir share/weir "$library/libweir_vulkan.so" "$library/libweir_cuda.so" \
    share/licenses/weir/cli11.txt share/licenses/weir/nlohmann-json.txt share/licenses/weir/cuda-runtime.txt; do
    [ ! -e "$work/alone/$file" ] || fail "$file is installed, but not built"
done
grep -q "Left out: component program is not built" "$work/alone.log" || fail "it does not say what it leaves out"
mv "$work/alone" "$work/moved"
outside_project "$work/moved" "$newest" || { cat "$work/outside.log"; exit 1; }
"$work/outside/outside" "$model"
for component in program cuda vulkan; do
    if "$cmake" --install "$partial" --prefix "$work/none" --component $component >"$work/none.log" 2>&1; then
        fail "component $component is not built, and installs"
    fi
    grep -q "component $component is not built" "$work/none.log" || { cat "$work/none.log"; fail "no help"; }
done
[ ! -e "$work/none" ] || fail "half an installation: $(find "$work/none")"

echo "== components"
"$cmake" --install "$partial" --prefix "$work/runtime" --component runtime >/dev/null
[ "$(files_in "$work/runtime" | grep -v '^share/licenses/')" = "$library/libweir.so.1" ] || fail "component runtime"
"$cmake" --install "$partial" --prefix "$work/development" --component development >/dev/null
headers=$(cd "$source/include" && ls weir/*.h | sed 's|^|include/|')
config=$library/cmake/weir/weir
type=$(sed -n 's/^CMAKE_BUILD_TYPE:[A-Z]*=//p' "$build/CMakeCache.txt" | tr 'A-Z' 'a-z')
rm -rf "$work/development/share/licenses"
archive=
[ ! -e "$build/lib/libweir.a" ] || archive="
$library/libweir.a"
expect "$work/development" "$headers
${config}Config.cmake
${config}ConfigVersion.cmake
${config}Targets-$type.cmake
${config}Targets.cmake$archive
$library/libweir.so
$library/pkgconfig/weir.pc"
cp "$build/bin/weir" "$partial/bin/"
"$cmake" --install "$partial" --prefix "$work/runtime" --component program >/dev/null
"$work/runtime/bin/weir" info -m "$model" >/dev/null
for module in cuda vulkan; do
    [ -e "$build/lib/libweir_$module.so" ] || continue
    cp "$build/lib/libweir_$module.so" "$partial/lib/"
    "$cmake" --install "$partial" --prefix "$work/$module" --component $module >/dev/null
    [ "$(files_in "$work/$module" | grep -v '^share/licenses/')" = "$library/libweir_$module.so" ] ||
        fail "component $module"
done
echo "installed whole, in part and by components"
