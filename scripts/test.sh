#!/usr/bin/env bash
# Installs the extras that the tests need and runs them; arguments go to pytest.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/environment.sh plot,test
# The tests compute little at a time: more threads would only wait for each other.
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}
exec "$python" -m pytest "$@"
