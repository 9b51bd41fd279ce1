"""Private parts: validation, argument checks, files, threads, native code."""
