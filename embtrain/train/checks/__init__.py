"""Checks of a configuration, before and during training.

compatibility.py        invalid combinations of source, loss and model
finite.py               checks for numbers that are not finite
target_metric.py        parses train.track_until
warmup.py               warns of a train.warmup as long as the run
allocation_counter.py   counts tensor memory during a computation
memory_trial.py         estimates the peak memory of an update
divergence_remedies.py  error message of a run that diverged
"""
