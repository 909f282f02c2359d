"""One training run, from its settings to its report.

run.py          Run; fit, resume, rescore: train, score, report
schema.py       the typed configuration
trainer.py      the trainer of a run folder, and its checkpoints
settings.py     merge YAML layers and flags into the typed configuration
model_parts.py  model, source, loss and training settings of a run
components.py   build these and the task from settings
started.py      state of a run folder in which training has begun
stored.py       rebuild a trained model from its run folder
scoring.py      benchmarks, held-out likelihood and label scores
downstream.py   benchmarks that train a translator on the vectors
translation.py  translate with a trained translator
translate_words.py  the same for sentences of word ids
dry_run.py      memory and time estimates before training
memory.py       refuse a run that does not fit into memory
divergence.py   warnings for runs that diverged with finite numbers
provenance.py   identity.json: code, corpus and machine of a run
"""
