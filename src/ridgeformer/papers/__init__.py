"""Papers whose results run as checks, one package each, named after the first author and the year.

A paper has the following modules; each imports only those above it. `vladymyrov2024` is the example to follow.

- `paper`: what the paper says, as data, such as its printed numbers and its problems; `grid()`, the runs that its
  models need; `models_of(runs)`, the models of a folder of runs, or the shipped ones for None.
- `table`: `Table`, with the paper's number beside each of ours and what is wrong with a cell; `measure` makes it.
- `evidence`: `Evidence(zoo, folder, sequences, seed, progress, again)`, all measurements that the modules below use.
  Each is a property that measures when it is first read, and is stored in `folder` and reused for the same models and
  settings. `PARTS` has the functions that measure, by name; `Evidence.measure(parts)` calls some.
- `render`: the table as text; `FORMATS` by name, `terminal(table)` and `column_table(table)` for a terminal.
- `figures`: `FIGURES` by number, each with a function that draws it, the parts of the evidence that it shows and a
  caption; `chosen(only)` checks numbers; `draw(evidence, folder, only)` writes files and returns their paths.
- `claims`: `CLAIMS`, functions of the evidence that each return a `Claim`: sentence, rule, numbers and verdict;
  `check_claims(evidence)` calls all.
- `report`: `write_report(evidence, folder, machine)` writes a page with all of that; returns its path and the claims.

None of them prints. There is no registry of papers: the commands of a paper import these modules by name when they are
called, as `table1`, `figures` and `report` do in `ridgeformer/cli/evidence.py`.
"""
