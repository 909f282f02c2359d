"""Components of other packages: subclasses that check results, and errors that name the user's file and line.

A class of embtrain is used as it is. Any other one is used as a subclass of the same name whose hooks, the methods
that a class of embtrain defines too, are wrapped: `named` turns exceptions into one line, and `checked` reads results.
"""

from __future__ import annotations

import copyreg
import functools
import inspect
import os
import sys
import traceback
from abc import ABCMeta
from collections.abc import Callable, Collection, Mapping
from types import CodeType, FunctionType
from typing import Any, cast

import torch

from embtrain.common.config.plugin_modules import PluginImporter
from embtrain.common.errors import EmbtrainError, UsageError, WrongClass, described_error, place

Hook = Callable[..., Any]
Wrap = Callable[[Hook], Hook]
Guard = Callable[[type[Any]], type[Any]]

_HERE = __name__.partition(".")[0]
_OWN = "_embtrain_own_class"   # attribute of a subclass that `with_checks` has made: the user's class
_subclasses: dict[type[Any], type[Any]] = {}
_guards: dict[type[Any], Guard] = {}       # of the subclasses
sys.meta_path.append(PluginImporter())


class AbstractMethod(WrongClass, TypeError):
    """A subclass does not implement a required method. The error names the class and its file."""

    def __init__(self, owner: object, method: str):
        component = unchecked(owner if isinstance(owner, type) else type(owner))
        super().__init__(f"{place_of(component)}: does not implement {method}; define it there")

    def __reduce__(self) -> tuple[type[WrongClass], tuple[Any, ...]]:
        return WrongClass, self.args                               # another process prints the line


class _Unregistered:
    """First base of the subclasses that `with_checks` makes: the user's `__init_subclass__` is not run for them."""

    def __init_subclass__(cls, **options: Any) -> None:
        if _OWN not in vars(cls):                                  # a class that the user derives from one of them
            super().__init_subclass__(**options)


def is_ours(item: Any) -> bool:
    """Whether a class or function is of this package."""
    return _package(item) == _HERE


def _package(item: Any) -> str:
    """The top-level package of a class or function; "" if its module is unknown."""
    return (item.__module__ or "").partition(".")[0]


def _is_of_user(item: Any) -> bool:
    """Whether a class or function is of another package than this one and PyTorch: a source may be an nn.Module too."""
    return item is not object and _package(item) not in (_HERE, torch.__name__)


def _code_of(function: Any) -> CodeType | None:
    """The code of the innermost function of the user that is called; None if it has none, as one written in C."""
    code, seen = None, set[int]()
    while function is not None and id(function) not in seen:       # a wrong __wrapped__ may be a cycle
        seen.add(id(function))
        found = getattr(function, "__code__", None)
        code = found if isinstance(found, CodeType) and found.co_filename != __file__ else code
        function = getattr(function, "__wrapped__", None)
    return code


def line_of(function: Any) -> str:
    """FILE:LINE of a function; FILE: NAME for one that was not read from a file, as a constructor of a dataclass."""
    code = _code_of(function)
    if code is not None and os.path.isabs(code.co_filename):
        return f"{code.co_filename}:{code.co_firstlineno}"
    module = sys.modules.get(function.__module__ or "")
    return f"{getattr(module, '__file__', function.__module__)}: {function.__qualname__}"


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
        if inspect.isabstract(component):
            raise WrongClass(f"{place_of(component)}: does not implement {min(component.__abstractmethods__)}; define "
                             "it there")
        _subclasses[component] = _subclass(component, guard, checks, other)
    return _subclasses[component]


def _subclass(component: type[Any], guard: Guard, checks: Mapping[str, Wrap], other: Wrap) -> type[Any]:
    members: dict[str, Any] = {"__doc__": component.__doc__, "__module__": component.__module__,
                               "__qualname__": component.__qualname__, _OWN: component}
    for name in dir(component):
        owner = next((base for base in component.__mro__ if name in vars(base)), None)    # None: of the metaclass
        if owner is None or not _is_of_user(owner) or _OWN in vars(owner) or not is_hook(component, name, checks):
            continue
        member = vars(owner)[name]
        if name in checks and not callable(getattr(component, name)):
            raise WrongClass(f"{place_of(component)}: {name} is not a method; define it with def")
        if name in checks and isinstance(member, FunctionType) and _is_static(component, name):
            raise WrongClass(f"{line_of(member)}: {component.__qualname__}.{name} is called without an object; add "
                             "@staticmethod")
        if _is_of_user(member) if isinstance(member, FunctionType) else name in checks:
            members[name] = _wrapped(component, name, member, checks.get(name, other))

    def reduce_ex(self: Any, protocol: Any) -> Any:
        reduced: Any = component.__reduce_ex__(self, protocol)  # type: ignore[call-arg]
        if isinstance(reduced, str):
            return reduced
        made, arguments, *rest = reduced
        own = unchecked(type(self))                                # or a class that the user derives from this one
        if made is type(self):
            return _restored, (guard, own, _call, arguments), *rest
        if arguments and arguments[0] is type(self):
            return _restored, (guard, own, made, arguments[1:]), *rest
        return made, arguments, *rest

    # without a call of the user's metaclass: it may register classes, too
    metaclass = _metaclass(cast(Any, type(component)))
    create = next(base for base in metaclass.__mro__ if base in (ABCMeta, type)).__new__
    # only then: Python assigns no class with a second base to an object if the user's first base has __slots__
    registers = any("__init_subclass__" in vars(base) and _is_of_user(base)
                    and _package(base) not in sys.stdlib_module_names for base in component.__mro__)
    bases = (_Unregistered, component) if registers and not issubclass(component, _Unregistered) else (component,)
    made: type[Any] = create(metaclass, component.__name__, bases, members | {"__reduce_ex__": reduce_ex})
    _guards[made] = guard
    return made


@functools.cache
def _metaclass(own: Any) -> Any:
    """A metaclass for subclasses with checks of classes whose metaclass is `own`; by it pickle finds `_reduced`.

    It is one for all of them, and derives from ABCMeta, so that a class can derive from several, and from an ABC.
    """
    made: Any = type(own.__name__, (ABCMeta if own is type else own,), {})
    copyreg.pickle(made, _reduced)
    return made


def _reduced(component: type[Any]) -> str | tuple[Any, ...]:
    """What a pickle contains of a class: the user's class and the function that adds the checks."""
    return (_guards[component], (unchecked(component),)) if component in _guards else component.__qualname__


def _restored(guard: Guard, component: type[Any], made: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    """A new object for a copy or a pickle."""
    return made(guard(component), *arguments)


def _call(component: type[Any], *arguments: Any) -> Any:
    return component(*arguments)


def is_hook(component: type[Any], name: str, checks: Collection[str]) -> bool:
    """Whether a class of this package, from which the component derives, has the method.

    One of PyTorch suffices for a method with a check, as that of the state of a module.
    """
    bases = [base for base in component.__mro__ if name in vars(base) and not _is_of_user(base)]
    return name == "__init__" or any(is_ours(base) or (name in checks and base is not object) for base in bases)


def _is_static(component: type[Any], name: str) -> bool:
    """Whether the method is a static one in a class of this package, too."""
    return any(isinstance(vars(base).get(name), staticmethod) and is_ours(base) for base in component.__mro__)


def _wrapped(component: type[Any], name: str, member: Any, wrap: Wrap) -> Any:
    """A hook of the user with a check: a function, or anything else that can be called as a method."""
    if isinstance(member, FunctionType):
        return wrap(member)

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        bound = member.__get__(self, component) if hasattr(type(member), "__get__") else member
        return bound(*args, **kwargs)
    method.__module__, method.__name__, method.__qualname__ = (
        component.__module__, name, f"{component.__qualname__}.{name}")
    inner = getattr(member, "__wrapped__", getattr(member, "func", None))       # of a decorator, of a partialmethod
    method.__wrapped__ = type(member).__call__ if inner is None and callable(member) else inner  # type: ignore[attr-defined]
    checked_method = wrap(method)
    if not _is_static(component, name):
        return checked_method

    @functools.wraps(method)
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
            module = _module_inside(error, function)
            is_kept = keeps_errors and module is not None and isinstance(error, Exception)
            if is_kept or "can't allocate memory" in str(error):
                raise
            where = (place(error, module) if module else "") or line_of(function)
            raise UsageError(f"{where}: {owner(self)}: {function.__name__}: {described_error(error)}; correct it "
                             "there") from error
    return call


def _module_inside(error: BaseException, function: Hook) -> str | None:
    """The module of the function, if the error arose after the call had begun; a wrong number of arguments ends before.
    """
    code = _code_of(function)
    return next((frame.f_globals.get("__name__", "") for frame, _ in traceback.walk_tb(error.__traceback__)
                 if frame.f_code is code), None)


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
        if not hasattr(self, "config"):
            raise UsageError(f"{where}: __init__ leaves out the base class; call super().__init__(config, problem) "
                             "first")
        check(self, where)
    return init
