#!/usr/bin/env bash
# Create .venv from requirements.lock; `make` calls it. The copy of the lock in .venv is written last: it says that the
# environment is complete, and of which lock.
set -euo pipefail
cd "$(dirname "$0")/.."

# make puts .venv in front: a Python that is about to be deleted cannot make its successor.
PATH=${PATH//"$PWD/.venv/bin:"/}

python=${PYTHON:-python3}
fail() {
    echo "make: error: $*" >&2
    exit 1
}

cmp -s requirements.lock .venv/requirements.lock && { touch .venv/requirements.lock; exit 0; }

command -v "$python" >/dev/null || fail "there is no $python; install Python 3.11 or newer, or name one: make PYTHON=..."
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
    fail "$python is $("$python" -V 2>&1), but 3.11 or newer is needed; name one: make PYTHON=python3.11"

echo "Creating .venv from requirements.lock: some minutes, and 2 GB of disk (6 GB where torch comes with CUDA)."
rm -rf .venv
pip=(.venv/bin/python -m pip)
if ! "$python" -m venv .venv >/dev/null 2>&1; then
    # Debian keeps what gives a new environment its pip in a package of its own; any other pip can fill it as well.
    rm -rf .venv
    "$python" -m pip --version >/dev/null 2>&1 && "$python" -m venv --without-pip .venv >/dev/null 2>&1 ||
        fail "$python can make no virtual environment; on Debian and Ubuntu: apt install python3-venv"
    pip=("$python" -m pip --python .venv/bin/python)
fi
quiet=--quiet
[ -t 1 ] && quiet=--progress-bar=on
"${pip[@]}" install "$quiet" --disable-pip-version-check --requirement requirements.lock ||
    fail "the packages could not be installed (see above); the same command tries again"
"${pip[@]}" install --quiet --disable-pip-version-check --no-build-isolation --no-deps --editable . ||
    fail "the package itself could not be installed (see above); the same command tries again"
cp requirements.lock .venv/requirements.lock
