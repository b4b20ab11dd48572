"""Classpath -> class: finds a processor class below a root folder, or says what stands there instead.

Two forms, both DashScope's: `pkg.mod.Class` and `path/file.py:Class`. Called in the worker, where the user's
code may run; importing it is running it.
"""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import inspect
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, cast

from strop.errors import FunctionError
from strop.functions.ark import hosted_ark, is_ark
from strop.functions.callables import hosted_callable, is_reward_callable
from strop.functions.dashscope_classes import hosted, is_theirs
from strop.functions.dashscope_door import open_door
from strop.functions.processor import AbstractProcessor
from strop.functions.tracebacks import user_traceback
from strop.locales import msg

_FORMS = "write it as `pkg.mod.Class` or `path/file.py:Class`, relative to zipdir"
_OWN_NAME = "strop_function_"

ProcessorClass = type[AbstractProcessor[Any, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """Where a classpath points: a file below the root, or else an importable module."""

    classpath: str
    root: Path
    module: str
    file: Path | None
    class_name: str

    def refuse(self, what: str, fix: str | None = None) -> FunctionError:
        return FunctionError(
            msg("classpath {classpath!r}: {what}", classpath=self.classpath, what=what), fix=fix
        )

    def shown(self, path: Path) -> str:
        return str(path.relative_to(self.root)) if path.is_relative_to(self.root) else str(path)


def load_processor(classpath: str, root: Path) -> ProcessorClass:
    """Import the module below `root` and take the class.

    Raises:
        FunctionError: nothing there, nothing that can be instantiated, or an import that failed; with near
        names, what is there instead, or the user's part of the traceback.
    Side effects:
        Puts `root` first in `sys.path`, so that the function's own imports work; opens the door for classes
        written for DashScope. Runs the module.
    """
    root = root.resolve()
    if not root.is_dir():
        raise FunctionError(
            msg("classpath {classpath!r}: no folder {root!r}", classpath=classpath, root=str(root)),
            fix=msg("correct zipdir"),
        )
    place = _place_in_file(classpath, root) if ":" in classpath else _place_in_module(classpath, root)
    if sys.path[:1] != [str(root)]:
        sys.path.insert(0, str(root))
    open_door()
    return _class_of(place, _import(place))


def _place_in_module(classpath: str, root: Path) -> _Place:
    module, _, class_name = classpath.rpartition(".")
    if not module or not all(part.isidentifier() for part in classpath.split(".")):
        raise FunctionError(
            msg("classpath {classpath!r} names no class in a module", classpath=classpath), fix=_FORMS
        )
    stem = root.joinpath(*module.split("."))
    candidates = (stem / "__init__.py", stem.with_name(stem.name + ".py"))
    file = next((candidate for candidate in candidates if candidate.is_file()), None)
    return _Place(classpath=classpath, root=root, module=module, file=file, class_name=class_name)


def _place_in_file(classpath: str, root: Path) -> _Place:
    path, _, class_name = classpath.rpartition(":")
    if not path or not class_name.isidentifier():
        raise FunctionError(
            msg("classpath {classpath!r} names no class in a file", classpath=classpath), fix=_FORMS
        )
    file = root / (path if path.endswith(".py") else path + ".py")
    module = _module_name(file, root)
    place = _Place(classpath=classpath, root=root, module=module, file=file, class_name=class_name)
    if not file.is_file():
        raise place.refuse(f"no file {place.shown(file)!r} in {str(root)!r}", _near_files(place, file))
    return place


def _module_name(file: Path, root: Path) -> str:
    """The dotted name by which the root's own imports reach `file`; a made-up one where none does."""
    file = file.resolve()
    if file.is_relative_to(root):
        parts = file.relative_to(root).with_suffix("").parts
        if all(part.isidentifier() for part in parts):
            return ".".join(parts)
    return _OWN_NAME + "".join(letter if letter.isalnum() else "_" for letter in file.stem)


def _import(place: _Place) -> ModuleType:
    try:
        if place.file is None or _reaches(place.module, place.file):
            return importlib.import_module(place.module)
        return _import_file(place.module, place.file)
    except ModuleNotFoundError as error:
        if place.file is None and error.name and f"{place.module}.".startswith(f"{error.name}."):
            expected = place.root.joinpath(*place.module.split(".")).with_suffix(".py")
            what = f"no module {place.module!r}, neither in {str(place.root)!r} nor installed"
            raise place.refuse(what, _near_files(place, expected)) from error
        raise _import_failure(place, error, _missing_module(place, error.name)) from error
    except (Exception, SystemExit, KeyboardInterrupt) as error:
        raise _import_failure(place, error) from error


def _import_failure(place: _Place, error: BaseException, fix: str | None = None) -> FunctionError:
    return place.refuse(f"importing it failed\n{user_traceback(error, place.root)}", fix)


def _reaches(module: str, file: Path) -> bool:
    """Whether `import module` gives this very file, and not a library or an earlier import of that name."""
    try:
        spec = importlib.util.find_spec(module)
    except (ModuleNotFoundError, ValueError):
        return False
    return spec is not None and spec.origin is not None and Path(spec.origin).resolve() == file.resolve()


def _import_file(module: str, file: Path) -> ModuleType:
    """Import a file whose dotted name is another module's, as `code/reward.py` is the standard library's."""
    name = module if module.startswith(_OWN_NAME) else _OWN_NAME + module.replace(".", "_")
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise ImportError(f"{file} is not a Python file")
    loaded = importlib.util.module_from_spec(spec)
    sys.modules[name] = loaded  # dataclasses and pickle look their module up there
    spec.loader.exec_module(loaded)
    return loaded


def _class_of(place: _Place, module: ModuleType) -> ProcessorClass:
    where = place.shown(place.file) if place.file else f"module {place.module}"
    found: Any = getattr(module, place.class_name, None)
    if found is None:
        raise place.refuse(f"no class {place.class_name!r} in {where}", _near_classes(place, module))
    named = f"{place.class_name!r} in {where}"
    if is_ark(found):
        return hosted_ark(found)
    if is_reward_callable(found):
        return hosted_callable(found)
    if not isinstance(found, type):
        raise place.refuse(f"{named} is a {type(found).__name__}, not a class", _near_classes(place, module))
    if is_theirs(found):
        if inspect.isabstract(found):
            raise place.refuse(f"class {named} has no process()", "write its process() method")
        return hosted(found)
    if not _is_processor(found) or not hasattr(found, "func_type"):
        raise place.refuse(
            f"class {named} is no rollout, reward or group reward",
            "derive from AbstractRolloutProcessor, AbstractRewardProcessor or AbstractGroupRewardProcessor",
        )
    processor_class: ProcessorClass = found
    if inspect.isabstract(processor_class):
        missing = ", ".join(sorted(processor_class.__abstractmethods__))
        parts = any(hasattr(value, "_is_sub_reward_func") for value in vars(processor_class).values())
        fix = "put @reward_func above the class" if parts else f"write its {missing}() method"
        raise place.refuse(f"class {named} has no {missing}()", fix)
    return processor_class


def _is_processor(value: object) -> bool:
    if isinstance(value, type) and issubclass(value, AbstractProcessor):
        return True
    return is_theirs(cast("object", value))


def _is_usable(value: object) -> bool:
    return _is_processor(value) or is_ark(value) or is_reward_callable(value)


def _near_classes(place: _Place, module: ModuleType) -> str:
    values = vars(module).items()
    own = [name for name, value in values if _is_usable(value) and value.__module__ == module.__name__]
    near = difflib.get_close_matches(place.class_name, own, n=1, cutoff=0.5)
    if near:
        return f"did you mean {near[0]!r}?"
    return f"it has {', '.join(own)}" if own else "it has no processor class at all"


def _near_files(place: _Place, missing: Path) -> str:
    """The nearest existing file, by its whole path; else what the folder holds."""
    folder = next((parent for parent in missing.parents if parent.is_dir()), place.root)
    patterns = ("*.py", "*/*.py") if folder == place.root else ("*.py",)
    found = sorted(place.shown(path) for pattern in patterns for path in folder.glob(pattern))
    near = difflib.get_close_matches(place.shown(missing), found, n=1, cutoff=0.6)
    if near:
        return f"did you mean {near[0]!r}?"
    if found:
        return f"{place.shown(folder)!r} has {', '.join(found[:10])}"
    return f"{place.shown(folder)!r} has no Python file; the path is relative to zipdir"


def _folder_with(place: _Place, package: str) -> Path | None:
    """The folder above the root, not far, that has what the user's code calls `package`."""
    for folder in place.root.parents[:3]:
        if (folder / package).is_dir() and place.root.is_relative_to(folder / package):
            return folder
    return None


def _missing_module(place: _Place, name: str | None) -> str | None:
    if name is None:
        return None
    if (folder := _folder_with(place, name.partition(".")[0])) is not None:
        return f"imports start at zipdir: set zipdir to {str(folder)!r}, where {name!r} is"
    if place.file is not None and place.file.parent.resolve().is_relative_to(place.root):
        sibling = place.file.parent / (name.partition(".")[0] + ".py")
        if sibling.is_file() and sibling.parent.resolve() != place.root:
            dotted = ".".join(sibling.resolve().relative_to(place.root).with_suffix("").parts)
            folder = place.shown(place.file.parent)
            return f"imports start at zipdir: write `import {dotted}`, or set zipdir to {folder!r}"
    return f"install the package that has {name!r} beside Strop"
