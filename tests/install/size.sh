#!/bin/sh
# The stripped library stays small: 4.5 MiB for a build with the CPU backend only, of which 2.7 are kernels for several
# instruction sets.
# Usage: size.sh LIBRARY WORK_FOLDER
set -eu
limit=$((9 * 1024 * 1024 / 2))
stripped=$2/libweir-stripped.so
"${STRIP:-strip}" --strip-unneeded -o "$stripped" "$1"
bytes=$(wc -c <"$stripped")
rm -f "$stripped"
echo "libweir.so, stripped: $bytes bytes, limit $limit"
[ "$bytes" -lt "$limit" ]
