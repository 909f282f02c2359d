"""Cases of a parametrization as a loop inside one test."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any

from _pytest.mark import ParameterSet


def looped(names: str, values: Iterable[Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Parametrize like pytest.mark.parametrize, but call the test for all cases in one test.

    pytest needs several milliseconds for each test, more than a cheap case. The error of a case names the case. The
    cases share the fixtures of the test. A case has no marks: pytest.param is an error.
    """
    arguments = [name.strip() for name in names.split(",")]
    values = list(values)
    assert not any(isinstance(value, ParameterSet) for value in values), f"{names}: pytest.param"
    cases = [dict(zip(arguments, value if len(arguments) > 1 else [value], strict=True)) for value in values]
    assert cases, f"{names}: no case"

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(test)
        def of_all_cases(**fixtures: Any) -> None:
            for case in cases:
                try:
                    test(**case, **fixtures)
                except BaseException as error:
                    error.add_note("case: " + ", ".join(f"{name}={value!r}" for name, value in case.items()))
                    raise

        signature = inspect.signature(test)
        left = [parameter for name, parameter in signature.parameters.items() if name not in arguments]
        of_all_cases.__signature__ = signature.replace(parameters=left)  # type: ignore[attr-defined]
        return of_all_cases

    return decorate
