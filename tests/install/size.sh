#!/bin/sh
# The stripped library stays small: 4 MiB for a build with the CPU backend only.
# Usage: size.sh LIBRARY WORK_FOLDER
set -eu
limit=$((4 * 1024 * 1024))
stripped=$2/libweir-stripped.so
"${STRIP:-strip}" --strip-unneeded -o "$stripped" "$1"
bytes=$(wc -c <"$stripped")
rm -f "$stripped"
echo "libweir.so, stripped: $bytes bytes, limit $limit"
[ "$bytes" -lt "$limit" ]
