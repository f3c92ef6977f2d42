#!/usr/bin/env bash
# From a fresh clone to a trained potential: about a minute of training after the installation.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/environment.sh plot
# A small data set wants some weight decay.
"$python" -m nepkit.train data/sige weight_decay=0.1 --out quickstart --device cpu "$@"
bin=$(dirname "$python")
echo "next: source $bin/activate, then nepkit train YOUR_FOLDER with its nep.in and train.xyz"
