"""Findings of a reading that are reported to the user.

tally     counts and findings of the readers
census    count the letters and digits that a tokenizer drops
remarks   warnings about a reading
"""
