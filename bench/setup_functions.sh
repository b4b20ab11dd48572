#!/bin/sh
# Installs Ray Serve into an environment of its own, beside this file, and wrk (Debian's package).
# A second run changes nothing. RAY chooses another version.
set -eu
folder=$(cd "$(dirname "$0")" && pwd)
venv="$folder/.venv-ray"
version=${RAY:-2.60.0}

command -v wrk >/dev/null || apt-get install -y -qq --no-install-recommends wrk
if "$venv/bin/python" -c "import importlib.metadata as m, sys; sys.exit(m.version('ray') != '$version')" 2>/dev/null
then
    echo "ray $version is in $venv"
    exit 0
fi
"${PYTHON:-python3}" -m venv "$venv"
"$venv/bin/pip" install --quiet ${PIP_FLAGS:-} "ray[serve]==$version"
"$venv/bin/python" -c "import ray; print('ray', ray.__version__)"
