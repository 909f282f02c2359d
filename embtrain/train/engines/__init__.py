"""Training steps: how one block of examples updates the model.

choose.py            selects the engine; reasons against the compiled one
autograd.py          Step: any model, source, loss and device
compiled.py          CompiledStep: base of the steps in the compiled core
compiled_windows.py  skip-gram
compiled_triples.py  TransE and DistMult
compiled_pairs.py    order embeddings
compiled_tasks.py    the compiled step of each task
false_negatives.py   finds drawn candidates that are known positives
"""
