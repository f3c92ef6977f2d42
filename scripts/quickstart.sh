#!/usr/bin/env bash
# From a fresh clone to a trained potential: about a minute of training after the installation.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/environment.sh plot
# Batches as small as these gain nothing from more threads.
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}
exec "$python" -m nepkit.train data/sige generation=3000 --out quickstart --device cpu "$@"
