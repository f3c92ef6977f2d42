#!/usr/bin/env bash
# Installs the extras that the tests need and runs them; arguments go to pytest.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/environment.sh plot,test
exec "$python" -m pytest "$@"
