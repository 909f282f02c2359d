"""Access to bytes on disk: archives, compressed files, lines, the cache and checksums.

archives     extract zip and tar archives, with limits on size and names
containers   read files, folders and archives as named byte streams, without extracting them
ranges       ranges of bytes of a large file, cut at line ends
lines        numbered lines of a stream, of bounded length
skipped      number of records that a reader passes over
encoding     a hint for bytes that are not UTF-8
cache        cached arrays, verified by their hashes
known_files  hashes and members of files, kept in the cache
folders      the cache folder, and retries if a part of it is deleted
npy          .npy files, with checked headers
token_lists  lists of tokens as a text file in the cache
checksummed  safetensors files that contain their own sha256
stored_corpus  the corpus arrays in a run folder
"""
