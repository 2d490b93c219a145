"""Wrapping named callables: when their module has been executed, before an importer can bind them."""

from __future__ import annotations

import functools
import importlib.machinery
import inspect
import json
import sys
import time
from collections.abc import Callable
from types import ModuleType
from typing import Any

from pinproof_spans.recording import Recorder, said

_Bindings = dict[int, list[tuple[ModuleType, str]]]  # id of a function -> module and name that it is bound to


def start(folder: str, names: str, loaded: float) -> None:
    """Wrap what has been imported already, and have the rest wrapped as it is imported."""
    recorder = Recorder(folder)
    targets, problem = _targets(names)
    waiting = {module: own for module, own in targets.items() if module not in sys.modules}
    if waiting:
        sys.meta_path.insert(0, _Finder(recorder, waiting))
    recorder.open(loaded)
    if problem:
        recorder.write("problem", text=problem)
    for module, own in waiting.items():
        if not _exists(module):
            for target in own:
                recorder.write("absent", name=target, why=f"there is no module {module}")
    late = {module: own for module, own in targets.items() if module not in waiting}
    bindings = _bindings(late) if late else {}
    for module, own in late.items():
        _wrap_all(recorder, sys.modules[module], own, bindings)
    recorder.write("ready", cost=round(time.monotonic() - loaded, 6))


def _targets(text: str) -> tuple[dict[str, list[str]], str | None]:
    """The callables by module, each once, and what is wrong with the list."""
    found: dict[str, list[str]] = {}
    bad = []
    try:
        for name in dict.fromkeys(json.loads(text)):
            module, _, rest = str(name).partition(":")
            if all(part.isidentifier() for part in (*module.split("."), *rest.split("."))):
                found.setdefault(module, []).append(name)
            else:
                bad.append(name)
    except Exception as error:
        return {}, f"PINPROOF_SPAN_NAMES is no JSON list of names: {said(error)}"
    return found, f"PINPROOF_SPAN_NAMES: not module:name: {bad[:5]}" if bad else None


# -- one callable --------------------------------------------------------------------------------


def _wrap_all(recorder: Recorder, module: ModuleType, targets: list[str], bindings: _Bindings | None) -> None:
    """Wrap every target of a module that has been executed; say of each what became of it.

    `bindings` are those of a module that was there before the plugin; None: it has just been executed.
    """
    begun = time.monotonic()
    for target in targets:
        try:
            event, values = _wrap(recorder, module, target, bindings)
        except Exception as error:
            event, values = "unwrappable", {"why": said(error)}
        recorder.write(event, name=target, **values)
    if bindings is None:
        recorder.write("cost", cost=round(time.monotonic() - begun, 6))


def _wrap(
    recorder: Recorder, module: ModuleType, target: str, bindings: _Bindings | None
) -> tuple[str, dict[str, Any]]:
    late = bindings is not None
    *way, last = target.partition(":")[2].split(".")
    owner: Any = module
    for name in way:
        owner = getattr(owner, name, None)
    of_class = isinstance(owner, type)
    raw = inspect.getattr_static(owner, last, None) if of_class else getattr(owner, last, None)
    if raw is None:
        if late and _is_importing(module):
            return "unwrappable", {"why": "the plugin came in the middle of its module's import"}
        return "absent", {"why": f"{module.__name__} has no {'.'.join([*way, last])}"}
    kind = type(raw) if of_class and isinstance(raw, (staticmethod, classmethod)) else None
    function = raw.__func__ if kind else raw
    if not inspect.isfunction(function) and (of_class or not inspect.isbuiltin(function)):
        # such as a class, a cached function or a kernel: a plain function in its place would break its users
        return "unwrappable", {"why": f"a {type(function).__name__}, not a function"}
    wrapper = _wrapper(recorder, target, function)
    setattr(owner, last, kind(wrapper) if kind else wrapper)
    rebound = []
    for other, key in bindings.get(id(function), ()) if late and not of_class else ():
        if other is not owner:
            setattr(other, key, wrapper)
            rebound.append(f"{getattr(other, '__name__', other)}:{key}")
    return "wrapped", {"late": late, "of_class": of_class, "rebound": rebound}


def _wrapper(recorder: Recorder, target: str, function: Callable) -> Callable:
    @functools.wraps(function)
    def spanned(*args, **kwargs):
        call = recorder.begin(target)
        try:
            result = function(*args, **kwargs)
        except BaseException as error:
            recorder.end(call, error, None)
            raise
        recorder.end(call, None, result)
        return result

    return spanned


def _bindings(late: dict[str, list[str]]) -> _Bindings:
    """Where modules have bound the functions of these targets already: one look at all modules, some milliseconds."""
    names = [(sys.modules[module], target.partition(":")[2]) for module, own in late.items() for target in own]
    found: _Bindings = {id(vars(module)[name]): [] for module, name in names if name in vars(module)}
    for module in list(sys.modules.values()) if found else ():
        values = getattr(module, "__dict__", None)
        for key, value in list(values.items()) if isinstance(values, dict) else ():
            if id(value) in found:
                found[id(value)].append((module, key))
    return found


# -- modules -------------------------------------------------------------------------------------


class _Finder:
    """Finds the modules of named callables as the other finders do, and has them wrapped once executed."""

    def __init__(self, recorder: Recorder, waiting: dict[str, list[str]]) -> None:
        self._recorder, self._waiting = recorder, waiting

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> Any:
        """As the import system asks for it; None for all modules but those."""
        if fullname not in self._waiting:
            return None
        for finder in sys.meta_path:
            find = getattr(finder, "find_spec", None)
            spec = find(fullname, path, target) if find and finder is not self else None
            if spec is not None:
                try:
                    self._hook(fullname, spec.loader)
                except Exception as error:
                    self._recorder.write("problem", text=f"{fullname} cannot be followed: {said(error)}")
                return spec
        return None

    def _hook(self, fullname: str, loader: Any) -> None:
        """Let this one loader wrap after it has executed: it keeps its type, which other code looks at."""
        if isinstance(loader, type):
            raise TypeError("its loader is shared by many modules")
        execute = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            loader.__dict__.pop("exec_module", None)
            try:
                execute(module)
            except BaseException as error:
                for name in self._waiting[fullname]:
                    self._recorder.write("import-failed", name=name, exception=said(error))
                raise
            _wrap_all(self._recorder, module, self._waiting[fullname], None)

        loader.exec_module = exec_module


def _exists(module: str) -> bool:
    """Whether a module is there, found without importing the packages around it."""
    path, parts = None, module.split(".")
    for count in range(1, len(parts) + 1):
        name = ".".join(parts[:count])
        if name in sys.modules:
            path = getattr(sys.modules[name], "__path__", None)
        else:
            spec = importlib.machinery.PathFinder.find_spec(name, None if path is None else list(path))
            if spec is None:
                return False
            path = spec.submodule_search_locations
        if path is None and count < len(parts):
            return False
    return True


def _is_importing(module: ModuleType) -> bool:
    return bool(getattr(getattr(module, "__spec__", None), "_initializing", False))
