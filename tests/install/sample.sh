#!/bin/sh
# A sample ends well. Those that read lines get some.
# Usage: sample.sh PROGRAM MODEL
set -eu
printf 'Hello\n/again\n/undo\nHello\nWho are you?\n' | "$1" "$2"
