"""The playground: one page that runs the C++ core in the browser, and what Python has to do with it.

`write_page` writes the page, which needs no network and no server: what `make playground` built, with the core and the
models in it. `read_address` reads a model out of the address that the page shows, which `ridgeformer.load` does too:
the text after #, such as `d=10&n=20&noise=uniform(0,5)&omega=0,0,-0.03,0`. `address` writes this text for a model.

>>> from ridgeformer import Problem
>>> model = read_address("https://example.org/playground.html#d=10&omega=0,0,-0.03,0")
>>> model
LinearTransformer(diag, dim=10, layers=1, heads=2)
>>> address(Problem(dim=10, context=20, noise="uniform(0,5)"), model)
'd=10&n=20&noise=uniform(0,5)&family=diag&omega=0.0,0.0,-0.03,0.0'
"""

from ridgeformer.playground.links import (
    address as address,
    is_address as is_address,
    page as page,
    read_address as read_address,
    write_page as write_page,
)
