"""Sinks: other programs that receive the numbers of a run.

base.py         Sink, the base class, and lookup by name
tensorboard.py  TensorBoard event files
mlflow.py       an MLflow store
"""
