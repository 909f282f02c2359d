"""Training: the loop, the optimizers and what they check, save and report.

loop.py        Trainer: blocks, log lines, evaluations, checkpoints
config.py      the keys under `train:`
optimizers.py  RowAdagrad, LazyAdam and PaddedAdam for embedding tables; makes those of a run
stopwatch.py   seconds of training without evaluations and checkpoints
growth.py      starts a trainer from the state of a run with fewer words
hardness.py    rank, cosine and cost of the negatives, per component
group/         one run that several processes train
engines/       one training step: autograd, or the compiled core
checks/        checks before training, and errors of a diverged run
state/         checkpoints, the metrics log, signals
sinks/         TensorBoard and MLflow
"""
