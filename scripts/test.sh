#!/usr/bin/env bash
# Installs the extras that the tests need and runs them; arguments go to pytest.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/environment.sh plot,test
# The tests compute little at a time: more threads would only wait for each other.
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}
# Files side by side on a few cores; GPU tests in turn, as each takes the device for itself.
case " $* " in *" gpu "*) side=0 ;; *) side=auto ;; esac
exec "$python" -m pytest -n $side --maxprocesses 4 --dist loadfile --no-loadscope-reorder "$@"
