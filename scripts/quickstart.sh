#!/usr/bin/env bash
# From a fresh clone to a trained potential: about a minute of training after the installation.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/environment.sh plot
# What suits few data of elements that are alike: a shared base, small batches, and muon.
"$python" -m nepkit.train data/sige generation=8000 shared_base=1 batch=8 optimizer=muon \
    --out quickstart --device cpu "$@"
bin=$(dirname "$python")
echo "next: source $bin/activate, then nepkit train YOUR_FOLDER with its nep.in and train.xyz"
