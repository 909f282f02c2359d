"""Reading of a large text in shards: consecutive files, or ranges of a large file.

reading    read a text at once or in shards
rules      settings of reading, and the encoding of documents by them
plan       cut the files of a text into shards
store      encode a shard into the cache, verified when it is read again
workers    encode shards in worker processes
merge      join shards into the ids that one reading would give
estimate   seconds, memory and disk of reading, from a sample
"""
