"""The command line: argv, streams and exit codes; one file a command."""
