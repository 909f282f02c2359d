"""One training run, from its settings to its report.

run.py          Run; fit, resume, rescore: train, score, report
schema.py       the typed configuration
trainer.py      the trainer of a run folder, and its checkpoints
settings.py     merges YAML layers and flags into the typed configuration
model_parts.py  model, source, loss and training settings of a run
components.py   builds these and the task from settings
started.py      state of a run folder: free for a new run, trained, changed
stored.py       rebuilds a trained model or translator from its run folder
scoring.py      benchmarks, held-out likelihood and label scores
downstream.py   benchmarks that train a translator on the vectors
dry_run.py, memory.py  estimates of memory and time before training; refuses runs that do not fit
results/        examples of answers, and warnings of runs that diverged
provenance.py   identity.json: code, corpus and machine of a run
"""
