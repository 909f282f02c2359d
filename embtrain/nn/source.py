"""The negative source of a module, its counts, and the loss.

The source is built at the first call. Without `counts`, every class starts with count 1, and each training call adds
its targets. A source that draws by counts (trait `uses_counts`) is built again whenever the number of counted targets
has doubled, and continues from the earlier one as `grow_from` defines. q of every draw stays exact: it is that of the
counts at the latest build.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from embtrain.common.config.arguments import whole_number
from embtrain.common.config.foreign_classes import described, unchecked
from embtrain.common.config.layers import Layer
from embtrain.common.config.tree import build
from embtrain.common.errors import UsageError
from embtrain.common.types import ProblemSpec
from embtrain.losses import base as losses
from embtrain.losses.base import Loss
from embtrain.negatives import base as negatives
from embtrain.negatives.base import NegativesConfig, NegativeSource
from embtrain.negatives.plugin_checks import guard_object, guarded
from embtrain.nn.arguments import SHARES, dense_tensor, in_arguments, of_type, one_of, type_of

DEFAULT_K = 64  # negatives per draw
FIRST_REBUILD = 1024  # counted targets before the first rebuild


@dataclass(frozen=True)
class SourceSpec:
    """A source that is not built yet: its class, its settings and the facts of the problem that do not change."""

    source_class: type[NegativeSource]  # the user's own, without its checks: a pickle contains it
    config: NegativesConfig
    seed: int
    context_sizes: tuple[int, ...] | None
    given: ProblemSpec | None = None  # of a source that was passed as an object

    def build(self, counts: Tensor, dim: int, device: torch.device) -> NegativeSource:
        """Build the source for counts (V,). Raises UsageError if it does not support the settings."""
        source: NegativeSource = guarded(self.source_class)(self.config, self.problem(counts, dim, device))
        return source

    def problem(self, counts: Tensor, dim: int, device: torch.device) -> ProblemSpec:
        """The problem of V classes with queries of D dimensions on a device."""
        if self.given is not None:
            return self.given
        sizes = self.context_sizes
        return ProblemSpec(len(counts), counts.to(torch.float64), sizes[0] if sizes and len(sizes) == 1 else None,
                           sizes if sizes and len(sizes) > 1 else None, dim=dim, seed=self.seed, device=str(device))


def spec_of(name: str, num_sampled: int | None, options: Mapping[str, Any], share: str | None, mask: str, seed: int,
            context_sizes: tuple[int, ...] | None) -> SourceSpec:
    """Validate the settings of a source. Raises UsageError for an unknown name, key or value.

    num_sampled: negatives per draw; None: DEFAULT_K. share: rows that share a draw; None: all rows, if the source can,
    and one row if it learns or cannot. Both, and the option share_size unless it is None, are refused for a source that
    does not sample.
    """
    of_type("negatives", name, str, "the name of a source, or a source")
    one_of("share", share, tuple(SHARES))
    with in_arguments():
        found = negatives.find(name)
    options = {key: value for key, value in options.items() if (key, value) != ("share_size", None)}
    if not samples(found):
        reason = "takes all classes as negatives" if found.traits.exhaustive else "draws no negatives"
        unused = {"num_sampled": num_sampled, "share": share, "share_size": options.get("share_size")}
        for argument, value in unused.items():
            if value is not None:
                raise UsageError(f"{argument}: {value}: {name} {reason}; leave the argument out, or pass None")
    if "share_size" in options and share != "block":
        raise UsageError(f"share_size: {options['share_size']}: has no effect without share='block'; set it, "
                         "or leave share_size out")
    tree = {"source": name, "k": DEFAULT_K if num_sampled is None else num_sampled, "filter": mask, **options}
    if "share_draws_by" in options or "k" in options or "source" in options:
        raise UsageError("options: source, k and share_draws_by are set by the arguments negatives, num_sampled and "
                         "share")
    tree["share_draws_by"] = SHARES[share] or ("batch" if _shares_by_default(found) else "row")
    with in_arguments():
        config = build(found.Config, [Layer("embtrain.nn", tree)], "negatives")
    return SourceSpec(unchecked(found), config, seed, context_sizes)


def spec_of_source(source: NegativeSource, num_classes: int, seed: int, own: Mapping[str, Any]) -> SourceSpec:
    """The spec of a source that is built already. own: arguments that set a source, which it has itself.

    The draws of a source of another package are checked from now on. Raises UsageError if an argument is given, or if
    the source is for another number of classes.
    """
    if not hasattr(source, "config"):
        raise UsageError(f"negatives: {described(source)}: has no settings; call super().__init__(config, problem) in "
                         "its constructor")
    if unused := [name for name, value in own.items() if value is not None]:
        raise UsageError(f"{unused[0]}: negatives is a source, which has settings of its own; set it there, or pass "
                         "the name of a source")
    problem = source.problem
    if problem.n_candidates != num_classes:
        raise UsageError(f"num_classes: {num_classes:,}, but this source was made for {problem.n_candidates:,}")
    sizes = problem.context_sizes or (None if problem.n_contexts is None else (problem.n_contexts,))
    guard_object(source)
    return SourceSpec(unchecked(type(source)), source.config, seed, sizes, problem)


def make_loss(name: str, defaults: Mapping[str, Any], options: Mapping[str, Any] | None, problem: ProblemSpec) -> Loss:
    """The loss of a name with its options, in place of the defaults. Raises UsageError for an unknown name or key."""
    of_type("loss", name, str, "the name of a loss")
    of_type("loss_options", {} if options is None else options, Mapping, "a mapping of keys to values")
    with in_arguments():
        loss_class = losses.find(name)
        layers = [Layer("loss_options", {"name": name, **defaults, **(options or {})})]
        return loss_class(build(loss_class.Config, layers, "loss"), problem)


def fixed_counts(counts: Tensor | Sequence[float], num_classes: int) -> Tensor:
    """The user's counts, (V,) float64. Raises UsageError for another shape, or values that are not counts."""
    expected = f"counts: should be {num_classes:,} numbers of at least 0, one for each class, and not all 0; got "
    if isinstance(counts, Tensor):
        dense_tensor("counts", counts)
        if counts.is_meta:
            raise UsageError("counts: is on the device meta, which stores no values; pass a list, or name the device "
                             "cpu where the tensor is made")
    if "complex" in str(getattr(counts, "dtype", "")):                     # the conversion would drop imaginary parts
        raise UsageError(f"{expected}complex numbers")
    try:
        found = torch.as_tensor(counts.detach() if isinstance(counts, Tensor) else counts, dtype=torch.float64,
                                device="cpu")
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise UsageError(f"{expected}{type_of(counts)} that cannot be converted") from error
    if found.shape != (num_classes,):
        raise UsageError(f"{expected}the shape {tuple(found.shape)}")
    if len(wrong := torch.nonzero(~((found >= 0) & found.isfinite()))):
        i = int(wrong[0])
        raise UsageError(f"counts: entry {i:,} is {float(found[i])!r}; it should be a finite number of at least 0")
    if not found.any():
        raise UsageError("counts: all are 0; give each class that occurs a count above 0, or leave counts out")
    return found


def context_sizes_of(num_contexts: int | Sequence[int] | None) -> tuple[int, ...] | None:
    """The number of ids in each column of `context`. Raises UsageError if one is not a whole number above 0."""
    if num_contexts is None:
        return None
    columns: Sequence[Any] = [num_contexts]
    with contextlib.suppress(TypeError):                                   # a number is not iterable
        columns = list(num_contexts) or columns  # type: ignore[arg-type]
    return tuple(whole_number("num_contexts", size, 1) for size in columns)


def samples(source: type[NegativeSource]) -> bool:
    """Whether a source draws some of the classes, as many as `num_sampled` sets."""
    return bool(source.traits.components) and not source.traits.exhaustive


def _shares_by_default(source: type[NegativeSource]) -> bool:
    """Whether a draw for the whole batch is the default. A source that learns gets a reward for each row instead."""
    return "batch" in source.traits.sharing_modes and not source.traits.learns


class StreamCounts:
    """Counts of the targets seen so far, and those that the source was built with, (V,) float64 each."""

    def __init__(self, num_classes: int):
        self.running = torch.ones(num_classes, dtype=torch.float64, device="cpu")
        self.used = self.running.clone()
        self.n_targets, self.next_rebuild = 0, FIRST_REBUILD

    def add(self, target: Tensor) -> bool:
        """Count targets (n,); return whether the source is due to be built again. Needs no synchronization."""
        self.running = self.running.to(target.device)
        self.running.index_add_(0, target, torch.ones_like(target, dtype=torch.float64))
        self.n_targets += len(target)
        if self.n_targets < self.next_rebuild:
            return False
        self.used = self.running.clone()
        self.next_rebuild = 2 * self.n_targets
        return True

    def state_dict(self) -> dict[str, Any]:
        return {"running": self.running.cpu(), "used": self.used.cpu(), "n_targets": self.n_targets,
                "next_rebuild": self.next_rebuild}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.running, self.used = state["running"].clone(), state["used"].clone()
        self.n_targets, self.next_rebuild = state["n_targets"], state["next_rebuild"]
