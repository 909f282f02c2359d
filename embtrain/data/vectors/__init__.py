"""Word vectors in memory and in files.

    vectors.py   `Vectors`, `read` and `write`: all formats, detected by content
    files.py     text formats (word2vec, GloVe), read within memory bounds
    text_lines.py  their lines: which fields are the word, which are numbers
    binary.py    word2vec's binary format
    tensors.py   safetensors files
    fasttext_file.py, fasttext_model.py  fastText's .bin, and the vectors of its words and n-grams
    keyed.py     gensim's KeyedVectors with subwords
    folders.py   export folders: Hugging Face, Embedding Projector, PyKEEN
    search_index.py  indexes for nearest-neighbour search: faiss, usearch
    replaced_files.py  replaces the files of an export folder together
    subword_table.py  rows of words and character n-grams, which give a vector to any word
    open.py      `ReadOptions`; unpacks files and rejects other file types
"""
