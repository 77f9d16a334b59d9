"""python -m courier: the same as the command `courier`."""

import sys

from courier.cli import main

sys.exit(main())
