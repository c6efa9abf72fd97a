"""A campaign of faults: killed processes, damaged and hostile files, full disks; seeded, and counted.

`make campaign` runs the large form of every part and prints how many cases held; `make test` runs a small one.

A part is a module of this package with

    SMALL, LARGE: int                                  cases of each form
    def run(count, seed, folder) -> Iterator[str]      one line for each case: "" where it held, else what happened

and a row in `frame.PARTS`. A case that fails names its number, so that `python -m campaign PART --seed N` repeats it.
"""
