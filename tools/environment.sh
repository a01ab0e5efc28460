#!/usr/bin/env bash
# Makes .venv hold exactly what requirements/dev.txt says, and the five rooms, editable. Run by `make setup`.
#
# Needs Linux on x86_64 with glibc, Python 3.11 or 3.12 with its venv module, and PyPI. Everything that is wrong is said in
# one line, before anything is changed. A second run takes no time: .venv/.ready holds a digest of what was installed.
set -euo pipefail
cd "$(dirname "$0")/.."

ROOMS=(api operator training inference client)
VENV=.venv
NEEDED_MIB=3000

fail() { printf 'setup: %s\n' "$*" >&2; exit 1; }
say() { printf 'setup: %s\n' "$*" >&2; }

digest() { # of all that decides the environment; the folder is in it because a venv's scripts name it
  { pwd -P; cat requirements/dev.txt requirements/uv.txt tools/environment.sh "${ROOMS[@]/%//pyproject.toml}"; cat training/src/qmljob_training/native/source/* 2> /dev/null || true; } | sha256sum | cut -d' ' -f1
}

# Prints nothing if the interpreter will do, else why not.
why_not() {
  command -v "$1" > /dev/null || { echo "not found"; return; }
  "$1" - 2> /dev/null << 'PYTHON' || echo "does not run"
import importlib.util, platform, sys
version = ".".join(map(str, sys.version_info[:3]))
if sys.version_info[:2] not in ((3, 11), (3, 12)):
    print("is", version)
elif sys.implementation.name != "cpython" or sys.maxsize < 2**32:
    print("is not a 64-bit CPython")
elif not (importlib.util.find_spec("venv") and importlib.util.find_spec("ensurepip")):
    print("is", version, "without its venv module (Debian, Ubuntu: apt install python%d.%d-venv)" % sys.version_info[:2])
elif platform.libc_ver()[0] != "glibc":
    print("is built for another C library than glibc, for which TensorFlow has no wheels")
PYTHON
}

find_python() { # sets python
  local candidate reason reasons=()
  for candidate in ${PYTHON:-python3.12 python3.11 python3}; do
    reason=$(why_not "$candidate")
    [ -n "$reason" ] || { python=$candidate; return; }
    reasons+=("$candidate $reason")
  done
  local all; printf -v all '%s; ' "${reasons[@]}"
  fail "needs Python 3.11 or 3.12: ${all%; }. Install one, or name one: make setup PYTHON=/path/to/python3.12"
}

check_machine() {
  [ "$(uname -s)" = Linux ] || fail "needs Linux, this is $(uname -s): TensorFlow Quantum 0.7.6 has no other wheels; use a Linux machine or container"
  [ "$(uname -m)" = x86_64 ] || fail "needs an x86_64 CPU, this is $(uname -m): TensorFlow Quantum 0.7.6 has no other wheels; use an x86_64 machine or container"
  grep -qw avx /proc/cpuinfo || fail "needs a CPU with AVX, which TensorFlow's wheels use: this machine (or virtual machine) does not show it"
}

check_disk() {
  local free; free=$(df -Pm . | awk 'NR == 2 {print $4}')
  [ "$free" -ge "$NEEDED_MIB" ] || fail "needs $NEEDED_MIB MiB of disk in $PWD, $free MiB are free; free some, or clone elsewhere"
}

same_disk() { # whether uv's cache and this folder can share files by hard links
  local cache=${UV_CACHE_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/uv}
  mkdir -p "$cache" && [ "$(stat -c %d "$cache")" = "$(stat -c %d .)" ]
}

usable_venv() {
  [ -x $VENV/bin/python ] && [ -z "$(why_not $VENV/bin/python)" ] && grep -qsF "$(pwd -P)/$VENV/bin/" $VENV/bin/pip
}

make_venv() {
  find_python
  say "making $VENV with $python (Python $(version "$python"))"
  "$python" -m venv --clear $VENV
}

install_uv() {
  local pin; pin=$(grep -o '^uv==[^ ]*' requirements/uv.txt)
  grep -qF "$pin " requirements/dev.txt || fail "requirements/dev.txt and requirements/uv.txt pin different versions of uv; compile them together: make lock"
  [ "uv==$($VENV/bin/uv --version 2> /dev/null | cut -d' ' -f2)" != "$pin" ] || return 0
  say "installing $pin from PyPI"
  $VENV/bin/python -m pip install --quiet --disable-pip-version-check --only-binary :all: --require-hashes -r requirements/uv.txt ||
    fail "pip could not install $pin (its message is above); is PyPI reached from here?"
}

install_packages() {
  export VIRTUAL_ENV=$PWD/$VENV UV_NO_CONFIG=1 UV_LINK_MODE=copy
  if same_disk; then UV_LINK_MODE=hardlink; fi
  say "installing $(grep -c '^[a-z0-9].*==' requirements/dev.txt) locked packages (the first time a download of about 500 MB; 2 GB on disk)"
  # uv's list of what it installed is of no use here; its large downloads, times and errors are.
  $VENV/bin/uv pip sync --require-hashes --only-binary :all: requirements/dev.txt 2>&1 | { grep -vE '^ ([-+~]|Downloaded) |^Downloading .*\([0-9](\.[0-9])?MiB\)' || true; } >&2 ||
    fail "uv could not install requirements/dev.txt (its message is above); run this again: what was downloaded is kept"
  # Without the cache: what an editable install links to depends on files that uv's cache key does not cover.
  $VENV/bin/uv pip install --quiet --offline --no-cache --no-deps --no-build-isolation "${ROOMS[@]/#/--editable=./}" ||
    fail "uv could not install the rooms ${ROOMS[*]} (its message is above)"
}

check_imports() { # also compiles their bytecode once, and not in each worker of the first run
  local versions; versions=$(grep -o '^[a-z0-9.-]*==[^ ]*' requirements/dev.txt)
  [ "$(cat $VENV/.loaded 2> /dev/null)" != "$versions" ] || return 0
  say "checking that TensorFlow Quantum loads"
  TF_USE_LEGACY_KERAS=1 TF_CPP_MIN_LOG_LEVEL=3 $VENV/bin/python -W ignore -c \
    'import tensorflow, tensorflow_quantum, tf_keras, h5py, google.cloud.storage, matplotlib.pyplot, pydantic, rich, typer, yaml' ||
    fail "the packages were installed but do not load (the message is above); try make clean setup"
  echo "$versions" > $VENV/.loaded
}

build_native() { # engine lightcone's native loops; nothing to do where this source is compiled already
  TF_CPP_MIN_LOG_LEVEL=3 $VENV/bin/python -W ignore -m qmljob_training native build --if-possible ||
    fail "the native loops do not compile (the message is above); QMLJOB_NATIVE=0 computes without them"
}

version() { "$1" -c 'import platform; print(platform.python_version())' 2> /dev/null; }

if [ -n "${PYTHON:-}" ]; then # an interpreter asked for by name: another one's .venv will not do
  find_python
  [ ! -e $VENV ] || [ "$(version "$python")" = "$(version $VENV/bin/python)" ] || rm -f $VENV/.ready $VENV/bin/pip
fi
wanted=$(digest)
[ "$(cat $VENV/.ready 2> /dev/null)" != "$wanted" ] || exit 0

started=$SECONDS
check_machine
check_disk
usable_venv || make_venv
rm -f $VENV/.ready
install_uv
install_packages
check_imports
build_native
echo "$wanted" > $VENV/.ready
say "ready in $((SECONDS - started)) s: Python $(version $VENV/bin/python) in $VENV"
