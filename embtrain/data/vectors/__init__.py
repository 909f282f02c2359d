"""Word vectors in memory and in files.

    vectors.py   `Vectors`, `read` and `write`: all formats, detected by content
    files.py     text formats (word2vec, GloVe), read within memory bounds
    binary.py    word2vec's binary format
    folders.py   export folders: Hugging Face, Embedding Projector, PyKEEN
    search_index.py  indexes for nearest-neighbour search: faiss, usearch
    open.py      `ReadOptions`; unpacks files and rejects other file types
"""
