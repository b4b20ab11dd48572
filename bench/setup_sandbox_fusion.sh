#!/bin/sh
# Puts SandboxFusion into a cache folder, to be measured beside ours without its container, and for its tests: its source
# at one commit, the packages that it names, what its tests need, and an interpreter for programs. Of conda it asks one thing, `activate NAME`; a file of
# one line answers that. A second run changes nothing. SANDBOX_FUSION_SOURCE names another place to clone from.
set -eu
folder=${STROP_BENCH_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/strop-bench}/sandbox-fusion
source=${SANDBOX_FUSION_SOURCE:-https://github.com/bytedance/SandboxFusion}
commit=469de0845cb7d665bc68044d541aa3aa28c5b30a
python=${PYTHON:-python3.11}

if [ -e "$folder/ready-2-$commit" ]; then
    echo "SandboxFusion is in $folder"
    exit 0
fi
mkdir -p "$folder/condabin" "$folder/bin" "$folder/envs"
rm -rf "$folder/source"
git clone --quiet --no-checkout "$source" "$folder/source"
git -C "$folder/source" checkout --quiet "$commit" -- pyproject.toml sandbox runtime assets
mkdir -p "$folder/source/docs/build" # its server mounts this folder
"$python" -m venv "$folder/envs/server"
"$python" -m venv --without-pip "$folder/envs/sandbox-runtime"
# The ranges of its pyproject.toml; MySQL, tests and linters are left out.
"$folder/envs/server/bin/pip" install --quiet --disable-pip-version-check ${PIP_FLAGS:-} \
    'pydantic>=2.4.0,<2.7.0' 'fastapi>=0.103.1,<0.104' 'uvicorn[standard]==0.25.0' 'structlog>=23.1.0,<24' \
    'psutil>=5.9.8,<6' 'aiofiles>=23.2.1,<24' 'aiohttp>=3.9.5,<4' 'tenacity>=8.4.2,<9' \
    'databases[aiosqlite]>=0.9.0,<0.10' 'transformers>=4.44.0,<5' 'numpy>=2,<3' pyyaml \
    'pytest>=8,<9' 'pytest-asyncio<1' httpx
printf 'export PATH="%s/envs/$1/bin:$PATH"\n' "$folder" > "$folder/bin/activate"
touch "$folder/ready-2-$commit"
echo "SandboxFusion $commit is in $folder"
