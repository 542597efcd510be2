"""The playground: one page that runs the C++ core in the browser, and what Python has to do with it.

`write_page` writes the page, which needs no network and no server. `read_address` reads a model out of the address that
the page shows, which `ridgeformer.load` does too.
"""

from ridgeformer.playground.address import is_address, read_address
from ridgeformer.playground.page import page, write_page

__all__ = ["is_address", "page", "read_address", "write_page"]
