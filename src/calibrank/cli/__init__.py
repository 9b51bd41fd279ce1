"""The `calibrank` command line: `commands` declares every command, a module of its name runs it."""
