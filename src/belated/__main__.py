"""``python -m belated``."""

from belated.commands.main import main

main()
