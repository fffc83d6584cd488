"""Imported once by what commands are forked from: their guards need not read torch anew, nor those
of their zygotes."""

from tpcheck.process.guard import read_ahead
from tpcheck.ranks.forker import preload
from tpcheck.ranks.zygote import FIRST_USED, OF_CHECKS

preload([*OF_CHECKS, *FIRST_USED])
read_ahead()
