"""How the help page of each command ends: what else to know of it, and examples."""

ENDINGS = {
    "": """\
exit codes: 0 done, 1 internal error, 2 mistake in the input, 3 interrupted
NEPKIT_DEBUG=1 in the environment shows where in the program a mistake was met.

examples:
  nepkit check PbTe                     look at nep.in, train.xyz and test.xyz
  nepkit train PbTe                     train there: PbTe/nep.txt
  nepkit predict PbTe/nep.txt test.xyz --out predictions
  nepkit train -h                       more of a command
""",
    "train": """\
The same command goes on with a run that was interrupted. On several GPUs:
torchrun --nproc-per-node 4 -m nepkit.train RUN_DIR

examples:
  nepkit train PbTe --max-time 9:50:00 generation=5000 "learning_rate=5e-3 1e-5"
""",
    "predict": """\
examples:
  nepkit predict nep.txt test.xyz --out predictions
  nepkit predict nep.txt test.xyz --out predictions --precision float64
""",
    "prepare": """\
With a run directory: finds all neighbours and keeps them beside the data, for
trainings on large sets. Without it the first training does so. The file can be
deleted at any time.

With a file: copies chosen frames as they are, and writes a nep.in beside them
that names their elements, if there is none.

examples:
  nepkit prepare PbTe
  nepkit prepare nep89.xyz --elements Mo,S,W --out MoSW/train.xyz
  nepkit prepare big.xyz.gz --max-frames 5000 --out small/train.xyz
""",
    "check": """\
Serious findings spoil a training or are refused by it, suspicious ones deserve
a look, notes are allowed. The exit code is 0, or 2 for an unreadable file.

examples:
  nepkit check PbTe             train.xyz and test.xyz, with nep.in's cutoffs
  nepkit check data.xyz --all   one file, cutoffs 8 and 4 Å, every finding
  nepkit check data.xyz --write clean.xyz
""",
    "info": """\
examples:
  nepkit info PbTe/nep.txt        elements, cutoffs, sizes, energies of atoms
  nepkit info PbTe/checkpoint.pt  how far the training is, how it goes on
  nepkit info data.xyz.gz         frames, atoms, elements, labels
  nepkit info PbTe                model, data and state of a run
""",
    "plot": """\
Curves, parity, errors by element and by source (config_type), and
distributions of errors.

examples:
  nepkit plot PbTe
  nepkit plot PbTe --format pdf --out figures
""",
    "report": """\
One file that needs no network: settings, errors, curves, and dots that tell
their frames.

examples:
  nepkit report PbTe
  nepkit report PbTe --out PbTe.html
""",
    "bench": """\
examples:
  nepkit bench PbTe
  nepkit bench PbTe batch=50 --device cpu --seconds 30
""",
}
