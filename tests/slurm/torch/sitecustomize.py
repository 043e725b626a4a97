"""Debian's PyTorch is built without libuv, but asks for it by default.

USE_LIBUV=0 is not read everywhere in torchrun and its workers; so no store of this
process asks for it. Python runs this file at its start, where PYTHONPATH names its folder.
"""

from torch.distributed import TCPStore

initialize = TCPStore.__init__


def initialize_without_libuv(self, *args, **options):
    initialize(self, *args, **{**options, "use_libuv": False})


TCPStore.__init__ = initialize_without_libuv
