"""``python -m rota`` is the ``rota`` command."""

import sys

from rota.cli.main import main

sys.exit(main())
