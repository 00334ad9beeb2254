"""Random programs over PyTorch's interface, under its own allocator and under gmlake.

`programs.py` draws them and knows what each read must give, `kinds.py` says what each kind has,
`machine.py` runs one, `observing.py` checks what observers were told, `worker.py` is the process
on the stand-in, `__main__.py` the command.
"""
