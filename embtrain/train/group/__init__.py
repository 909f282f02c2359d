"""One run that several processes train, as torchrun starts them.

config.py        the keys under `train.sync`
launch.py        joins the processes, and makes an error of one of them the one line that process 0 prints
meeting.py       a fresh name for the processes of one launch
processes.py     ProcessGroup: rank, size, exchange of bytes, work of process 0 alone
exchange.py      puts the tables of all processes together
states.py        nested states as bytes
tiers.py         RowSchedule: the rows that each synchronization exchanges
traffic.py       counts and estimates the bytes of an exchange
turns.py         processes that take turns in one process
sharded/         tables cut by rows over the processes
trainer.py       GroupTrainer: the training loop of one process of a group
requirements.py  refuses runs that a group of processes cannot train
"""
