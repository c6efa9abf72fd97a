"""The papers' figures and tables as studies: declared as data, run by one command, with the papers' numbers inside.

    widemargin study run E3 --scale quick

`schema` says what a study is made of, `catalog` finds one by its id, `run` runs it, `verdict` compares our numbers with
the paper's. Declaring and listing studies imports no torch; the tasks that train do.
"""
