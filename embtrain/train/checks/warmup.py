"""Warns if a run ends before its learning rate has risen: it would train almost nothing."""

from __future__ import annotations

import logging

from embtrain.train.config import TrainConfig

_log = logging.getLogger("embtrain")


def warn_if_too_long(config: TrainConfig, n_blocks: int) -> None:
    """Warn if `train.warmup` is at least as long as a run of `n_blocks`. Half a run is the longest useful warm-up."""
    if config.warmup < max(n_blocks, 1):
        return
    shorter = f"at most {n_blocks // 2:,}" if n_blocks > 1 else "0"
    _log.warning("train.warmup: %s: the run has only %s, so it ends while the learning rate still rises to train.lr; "
                 "set %s, or raise train.epochs", f"{config.warmup:,}",
                 f"{n_blocks:,} block{'s' * (n_blocks != 1)}", shorter)
