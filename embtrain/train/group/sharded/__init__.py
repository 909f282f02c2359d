"""Tables cut by rows over the processes of a group.

shards.py   TableShards: the rows of one process, and exchanges of rows and moves
steps.py    steps on the rows of some blocks
trainer.py  ShardedTrainer: GroupTrainer with these tables
"""
