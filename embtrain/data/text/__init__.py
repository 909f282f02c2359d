"""Running text: from files to ids, held-out parts, and training batches.

corpus          read text into ids, arrange its parts, and split them
readers         documents of plain text, TEI, wiki dumps, JSON lines and tagged text
tokenize        tokenizers, and one pass over the text in Python
scan            the same pass through the compiled core
words           words of prose             ngrams  character n-grams
vocabulary      the words with an id
holdout         choose held-out documents
windows         skip-gram windows
streams         streams of a language model
phrases         join frequent pairs of words
findings        counts and findings of a reading, and warnings about them
shards          read a large text in shards, by worker processes
spelling        look up words in other spellings
"""
