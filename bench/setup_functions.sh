#!/bin/sh
# Installs Ray Serve into an environment of its own, beside this file, what DashScope's container is also measured
# with into a folder, and wrk (Debian's package).
# A second run changes nothing. RAY chooses another version.
set -eu
folder=$(cd "$(dirname "$0")" && pwd)
venv="$folder/.venv-ray"
version=${RAY:-2.60.0}
# The interpreter that the benchmark itself runs with: what is installed here is imported there.
python=${PYTHON:-$folder/../.venv/bin/python}

if ! [ -x "$python" ]; then
    echo "there is no $python: run make setup first, or name another by PYTHON" >&2
    exit 1
fi
command -v wrk >/dev/null || apt-get install -y -qq --no-install-recommends wrk
if ! [ -d "$folder/.venv-standard" ]; then
    "$python" -m pip install --quiet ${PIP_FLAGS:-} --target "$folder/.venv-standard" httptools uvloop
fi
if "$venv/bin/python" -c "import importlib.metadata as m, sys; sys.exit(m.version('ray') != '$version')" 2>/dev/null
then
    echo "ray $version is in $venv"
    exit 0
fi
"$python" -m venv "$venv"
"$venv/bin/pip" install --quiet ${PIP_FLAGS:-} "ray[serve]==$version"
"$venv/bin/python" -c "import ray; print('ray', ray.__version__)"
