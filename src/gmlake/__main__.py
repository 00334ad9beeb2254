"""python -m gmlake: the same as the command gmlake."""

import sys

from gmlake.commands import main

if __name__ == "__main__":
    sys.exit(main())
