"""Diagnosis of samplers on a trained model.

diagnose.py         `embtrain diagnose`: geometry of the table; bias, closeness and cost of each sampler
sampler_quality.py  SamplerQuality: KL, gradient bias and cost of one source
subset_view.py      the model restricted to fewer candidates
dump.py             drawn negatives as a table
"""
