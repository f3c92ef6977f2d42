# Sourced by quickstart.sh and test.sh, in the repository's folder, with the extras to install.
# Sets $python, an interpreter with nepkit and them. See "Installing" in README.md.

python=${PYTHON:-python3}
if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))'; then
    echo "$python is not Python 3.10 or newer; name one that is, as in PYTHON=python3.12" >&2
    exit 2
fi

has_torch() { "$1" -c 'import importlib.util as u, sys; sys.exit(u.find_spec("torch") is None)'; }
is_venv() { "$1" -c 'import sys; sys.exit(sys.prefix == sys.base_prefix)'; }

if ! { is_venv "$python" && has_torch "$python"; }; then
    if ! .venv/bin/python -m pip --version >/dev/null 2>&1; then
        echo "making the environment .venv"
        # What comes with a Python that has torch (conda, modules of a cluster) stays in sight.
        sight=$(! has_torch "$python" || echo --system-site-packages)
        "$python" -m venv --clear $sight .venv
    fi
    python=.venv/bin/python
fi

prefix=$("$python" -c 'import sys; print(sys.prefix)')
stamp=$prefix/nepkit-$(echo "$1 ${NEPKIT_TORCH:-} $PWD" | cksum | cut -d " " -f 1)
if ! [ "$stamp" -nt pyproject.toml ]; then
    echo "installing nepkit into $prefix: a minute or two"
    if [ -n "${NEPKIT_TORCH:-}" ]; then
        "$python" -m pip install --quiet $NEPKIT_TORCH
    elif ! has_torch "$python"; then
        # Of the same version, pip prefers the CPU build, which is a tenth of the default one.
        "$python" -m pip install --quiet --retries 1 torch==2.13.0 \
            --extra-index-url https://download.pytorch.org/whl/cpu
    fi
    # As a path: beside a folder of the same name, as a clone is, a finder of imports comes second.
    "$python" -m pip install --quiet --config-settings editable_mode=compat --editable ".[$1]"
    touch "$stamp"
fi
