"""Components of other packages: subclasses that check results, and errors that name the user's file and line.

A class of embtrain is used as it is. Any other one is used as a subclass of the same name whose hooks, the methods
that a class of embtrain defines too, are wrapped: `named` turns exceptions into one line, and `checked` reads results.
"""

from __future__ import annotations

import copyreg
import functools
import inspect
import sys
import traceback
from abc import ABCMeta
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from embtrain.common import registry
from embtrain.common.config.plugin_modules import PluginImporter
from embtrain.common.errors import EmbtrainError, UsageError, WrongClass

Hook = Callable[..., Any]
Wrap = Callable[[Hook], Hook]
Guard = Callable[[type[Any]], type[Any]]

MAX_DEPTH = 50                 # levels of a state, as in a checkpoint
_HERE = __name__.partition(".")[0]
_OWN = "_embtrain_own_class"   # attribute of a subclass that `with_checks` has made: the user's class
_subclasses: dict[type[Any], type[Any]] = {}
sys.meta_path.append(PluginImporter())


class AbstractMethod(WrongClass, TypeError):
    """A subclass does not implement a required method. The error names the class and its file."""

    def __init__(self, owner: object, method: str):
        component = unchecked(owner if isinstance(owner, type) else type(owner))
        super().__init__(f"{place_of(component)}: does not implement {method}; define it there")


class _Unregistered:
    """First base of the subclasses that `with_checks` makes: the user's `__init_subclass__` is not run for them."""

    def __init_subclass__(cls, **options: Any) -> None:
        if _OWN not in vars(cls):                                  # a class that the user derives from one of them
            super().__init_subclass__(**options)


def is_ours(item: Any) -> bool:
    """Whether a class or function is of this package."""
    return item.__module__.partition(".")[0] == _HERE


def _is_of_user(function: Any) -> bool:
    """Whether a function is of another package than this one and PyTorch: a source may be an nn.Module too."""
    return not is_ours(function) and function.__module__.partition(".")[0] != torch.__name__


def line_of(function: Any) -> str:
    """FILE:LINE of a function."""
    code = inspect.unwrap(function).__code__
    return f"{code.co_filename}:{code.co_firstlineno}"


def described(component: Any) -> str:
    """The name of a component, with its class and file if it is of another package: `mine (Mine in FILE)`."""
    found = unchecked(type(component))
    return component.name if is_ours(found) else f"{component.name} ({found.__qualname__} in {_file_of(found)})"


def place_of(component: type[Any]) -> str:
    """`FILE: CLASS` of a class of the user, whose module has an internal name."""
    return f"{_file_of(component)}: {component.__qualname__}"


def _file_of(component: type[Any]) -> str:
    try:
        return inspect.getfile(component)
    except (OSError, TypeError):                                   # defined where there is no file
        return component.__module__


def unchecked(component: type[Any]) -> type[Any]:
    """The user's class of a subclass that `with_checks` has made, which no pickle contains; any other class itself."""
    own: type[Any] = vars(component).get(_OWN, component)
    return own


def with_checks(component: type[Any], guard: Guard, checks: Mapping[str, Wrap], other: Wrap) -> type[Any]:
    """The class itself if it is of this package; else its subclass with wrapped hooks, which is made once.

    checks: by the name of the hook; other: for the other hooks. guard: the function that calls this one; a pickle
    contains it with the user's class.
    """
    if is_ours(component) or component in _subclasses.values():
        return component
    if component not in _subclasses:
        _subclasses[component] = _subclass(component, guard, checks, other)
    return _subclasses[component]


def _subclass(component: type[Any], guard: Guard, checks: Mapping[str, Wrap], other: Wrap) -> type[Any]:
    members: dict[str, Any] = {"__doc__": component.__doc__, "__module__": component.__module__,
                               "__qualname__": component.__qualname__, _OWN: component}
    for name in dir(component):
        member = inspect.getattr_static(component, name)
        function = member.__func__ if isinstance(member, staticmethod) else member
        if name in checks and not callable(getattr(component, name)):
            raise WrongClass(f"{place_of(component)}: {name} is not a method; define it with def")
        if not inspect.isfunction(function) or not _is_of_user(function):
            continue
        if name not in checks and not _is_hook(component, name):
            continue
        wrap = checks.get(name, other)
        if function is member:
            members[name] = wrap(function)
        elif _is_static(component, name):
            members[name] = _wrapped_static(component, function, wrap)

    def reduce_ex(self: Any, protocol: Any) -> Any:
        reduced: Any = component.__reduce_ex__(self, protocol)  # type: ignore[call-arg]
        if isinstance(reduced, str):
            return reduced
        made, arguments, *rest = reduced
        if made is type(self):
            return _restored, (guard, component, _call, arguments), *rest
        if arguments and arguments[0] is type(self):
            return _restored, (guard, component, made, arguments[1:]), *rest
        return made, arguments, *rest

    # of the user's metaclass, without a call of it: it may register classes, too; of a subclass of it, because pickle
    # finds the function that reduces a class by its metaclass
    metaclass = type(component.__name__, (type(component),), {})
    create = next(base for base in metaclass.__mro__ if base in (ABCMeta, type)).__new__
    made: type[Any] = create(metaclass, component.__name__, (_Unregistered, component),
                             members | {"__reduce_ex__": reduce_ex})
    copyreg.pickle(metaclass, lambda item: (guard, (component,)) if item is made else item.__qualname__)
    return made


def _restored(guard: Guard, component: type[Any], made: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    """A new object for a copy or a pickle."""
    return made(guard(component), *arguments)


def _call(component: type[Any], *arguments: Any) -> Any:
    return component(*arguments)


def _is_hook(component: type[Any], name: str) -> bool:
    """Whether a class of this package, from which the component derives, has the method."""
    return any(name in vars(base) and is_ours(base) for base in component.__mro__) or name == "__init__"


def _is_static(component: type[Any], name: str) -> bool:
    """Whether the method is a static one in a class of this package, too."""
    return any(isinstance(vars(base).get(name), staticmethod) and is_ours(base) for base in component.__mro__)


def _wrapped_static(component: type[Any], function: Hook, wrap: Wrap) -> staticmethod[..., Any]:
    """The static method with a check, which has the class in place of an object."""
    @functools.wraps(function)
    def method(_: Any, *args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)
    checked_method = wrap(method)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return checked_method(component, *args, **kwargs)
    return staticmethod(call)


def named(function: Hook, owner: Callable[[Any], str], keeps_errors: bool = False) -> Hook:
    """The method with its exceptions as a UsageError that names file and line.

    owner: text that names the object. keeps_errors: exceptions inside the method stay as they are. SystemExit never
    does, because the command would end as if it were done.
    """
    @functools.wraps(function)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return function(self, *args, **kwargs)
        except (EmbtrainError, MemoryError, torch.OutOfMemoryError):
            raise
        except (Exception, SystemExit) as error:
            is_inside = _is_inside(error, function)
            is_kept = keeps_errors and is_inside and isinstance(error, Exception)
            if is_kept or "can't allocate memory" in str(error):
                raise
            where = registry.place(error, function.__module__) if is_inside else line_of(function)
            raise UsageError(f"{where}: {owner(self)}: {function.__name__}: {type(error).__name__}: {error}; correct "
                             "it there") from error
    return call


def _is_inside(error: BaseException, function: Hook) -> bool:
    """Whether the error arose after the call had begun; a wrong number of arguments ends before."""
    code = inspect.unwrap(function).__code__
    return any(frame.f_code is code for frame, _ in traceback.walk_tb(error.__traceback__))


def checked(function: Hook, call: Hook, owner: Callable[[Any], str], problem: Callable[..., str]) -> Hook:
    """The hook `call` of a function, whose result is checked.

    problem(self, result, *arguments) returns what is wrong with the result and what to do, or "". A call with arguments
    that `problem` does not have is in a form of the class's own, as `state_dict` of an nn.Module, and is not checked.
    """
    form = inspect.signature(problem)

    @functools.wraps(function)
    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = call(self, *args, **kwargs)
        try:
            bound = form.bind(self, result, *args, **kwargs)
        except TypeError:
            return result
        if line := problem(*bound.args, **bound.kwargs):
            raise UsageError(f"{line_of(function)}: {owner(self)}: {function.__name__} {line}")
        return result
    return run


def checked_init(function: Hook, call: Hook, owner: Callable[[Any], str],
                 check: Callable[[Any, str], object] = lambda component, where: None) -> Hook:
    """The hook `call` of a constructor: it must call that of the base class, which sets `config`.

    check(self, where) raises UsageError, which begins with `where`, for a component that is built wrongly.
    """
    @functools.wraps(function)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        call(self, *args, **kwargs)
        where = f"{line_of(function)}: {owner(self)}"
        if "config" not in vars(self):
            raise UsageError(f"{where}: __init__ leaves out the base class; call super().__init__(config, problem) "
                             "first")
        check(self, where)
    return init


# -- results of hooks: each function returns a problem, or "" ---------------------------------------------------------

def floats_problem(result: Any, shape: tuple[int | str, ...], meaning: str, device: torch.device) -> str:
    """The problem with floats of a shape on a device. A size with a name, as in (5, 'D'), may be any."""
    sizes = ", ".join(map(str, shape)) + "," * (len(shape) == 1)
    expected = f"return floats of shape ({sizes}), {meaning}"
    if not isinstance(result, Tensor):
        return f"returned {type(result).__name__}; {expected}"
    fits = len(shape) == result.ndim and all(isinstance(size, str) or size == n
                                             for size, n in zip(shape, result.shape, strict=True))
    if not fits or not result.is_floating_point():
        return f"returned {result.dtype} of shape {tuple(result.shape)}; {expected}"
    if not is_on(result, device):
        return f"returned a tensor on {result.device}; {expected}, on {device}"
    return ""


def is_on(value: Tensor, device: torch.device) -> bool:
    """Whether a tensor is on a device, of whose kind any fits if it has no number."""
    return value.device.type == device.type and device.index in (None, value.device.index)


def metrics_problem(_: Any, result: Any, *__: Any, **___: Any) -> str:
    """The problem with metrics for the log, a dict of names and numbers."""
    if not isinstance(result, dict):
        return f"returned {type(result).__name__}; return a dict of names and numbers, {{}} for none"
    for name, value in result.items():
        if not isinstance(name, str) or not isinstance(value, int | float):
            return f"returned {type(value).__name__} for {name!r}; return a number for each name, as float(value)"
    return ""


def state_problem(value: Any, where: str = "", depth: int = MAX_DEPTH) -> str:
    """The problem with a state: values that a checkpoint cannot contain."""
    if isinstance(value, Tensor):
        if value.layout == torch.strided and not value.is_quantized and not value.is_meta:
            return ""
        return f"returned a sparse, quantized or meta tensor{where and f' at {where}'}; return a dense one"
    if depth == 0:
        return f"returned more than {MAX_DEPTH} levels; return a flat state"
    if isinstance(value, dict):
        for name in value:
            if not isinstance(name, str | int) or isinstance(name, bool):
                return f"returned the key {name!r}{where and f' at {where}'}; return keys that are str or int"
        return next(filter(None, (state_problem(x, f"{where}[{name!r}]", depth - 1) for name, x in value.items())), "")
    if isinstance(value, list | tuple):
        return next(filter(None, (state_problem(x, f"{where}[{i}]", depth - 1) for i, x in enumerate(value))), "")
    if value is None or isinstance(value, bool | int | float | str):
        return ""
    return (f"returned {type(value).__name__}{where and f' at {where}'}, which a checkpoint cannot contain; return "
            "tensors, numbers or text, in dicts, lists and tuples")
