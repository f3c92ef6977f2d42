#!/usr/bin/env bash
# From a fresh clone to a trained potential: about a minute of training after the installation.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/environment.sh plot
# What suits few data: elements that borrow from each other, and small batches.
"$python" -m nepkit.train data/sige shared_base=1 weight_decay=3 batch=8 --out quickstart --device cpu "$@"
bin=$(dirname "$python")
echo "next: source $bin/activate, then nepkit train YOUR_FOLDER with its nep.in and train.xyz"
