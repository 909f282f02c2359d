"""Shared by the features of the exponential kernel: K(h, c) = e^{x·y}, x = √ν h, y = √ν c, so that K = e^{ν h·c}.

ν is the inverse temperature of the kernel and τ that of the scores: q ∝ e^o if ν = τ and φ is exact. Random features
are too noisy for a large ν, so a smaller one is used (Rawat et al. 2019, remark 2; with ν = 1/T², T = .5 is best).
"""

from __future__ import annotations

from pydantic import Field

from embtrain.common.config.setting_keys import key
from embtrain.common.errors import UsageError
from embtrain.negatives.softmax.kernels.base import KernelConfig
from embtrain.negatives.softmax.kernels.feature_map import FeatureMap

MAX_NU = 4.0    # default without ν and T: τ, but at most the best value of the paper


class ExponentialConfig(KernelConfig):
    """Settings common to the sources of the exponential kernel."""

    features: int = Field(1024, ge=1, le=1_000_000, description="D, random features")
    nu: float | None = Field(None, gt=0, le=1000, description="ν; null: τ of the scores, at most 4")
    temperature: float | None = Field(None, gt=0, le=1000, description="T, an alternative to nu: ν = 1/T²; null: by nu")


class ExponentialMap(FeatureMap):
    """Base of feature maps of the exponential kernel; sets the scale. Raises UsageError if both ν and T are set."""

    def __init__(self, config: ExponentialConfig):
        if config.nu is not None and config.temperature is not None:
            raise UsageError(f"{key('nu')}: nu and temperature set the same quantity (nu = 1/temperature²); set one of "
                             "them")
        self.nu = config.nu if config.temperature is None else config.temperature ** -2
        nu_text = "nu set by tau" if self.nu is None else f"{key('nu')} = {self.nu:g}"
        self.description = f"{nu_text} and {key('features')} = {config.features:,}"

    def scale(self, tau: float) -> float:
        return (min(tau, MAX_NU) if self.nu is None else self.nu) ** 0.5
