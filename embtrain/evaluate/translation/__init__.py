"""Evaluation of translators.

decoding.py     greedy and beam search
bf16_search.py  nearest word by a bfloat16 table
scores.py       BLEU, and accuracy of predicted vectors
"""
