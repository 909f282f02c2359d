"""Training steps: how one block of examples updates the model.

choose.py            selects the engine; reasons against the compiled one
base.py              Engine: base class and registry; StepResult
autograd.py          Step: any model, source, loss and device
compiled.py          CompiledStep: base of the steps in the compiled core
skipgram_kernel.py   shared by skip-gram and CBOW
compiled_windows.py  skip-gram
compiled_contexts.py  CBOW
compiled_triples.py  TransE and DistMult
compiled_pairs.py    order embeddings, Poincaré embeddings, cones, shadow cones
device/              steps on a GPU
draws.py             slices of draws; costs that a source learns from
false_negatives.py   finds drawn candidates that are known positives
"""
